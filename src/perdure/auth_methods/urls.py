"""URLs of services that methods ask."""

from __future__ import annotations

from urllib.parse import urlsplit

from perdure.errors import ConfigError


def check_http_url(url: str, setting: str) -> None:
    """Refuse what is no URL of HTTP.

    Raises:
        ConfigError: it is none.
    """
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise ConfigError(
            f"{url!r} is no URL of HTTP", path=setting, hint="such as https://auth.example/mqtt"
        )
