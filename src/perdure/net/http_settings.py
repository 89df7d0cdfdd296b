"""What the broker is told of services that it asks by HTTP: URLs and headers."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from perdure.errors import ConfigError

HEADERS_MAX: Final = 20


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


def read_headers(file: str, setting: str) -> dict[str, str]:
    """The lines ``Name: value`` of a file.

    Args:
        file: its name; empty = there are none.
        setting: for errors.

    Raises:
        ConfigError: it cannot be read, or a line is wrong.
    """
    if not file:
        return {}
    try:
        lines = Path(file).read_text(encoding="ascii").splitlines()
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", path=setting) from error
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not ASCII", path=setting) from None
    headers: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip() or " " in name.strip():
            hint = "lines `Name: value`"
            raise ConfigError(f"{file}:{number}: no header", path=setting, hint=hint)
        headers[name.strip()] = value.strip()
    if len(headers) > HEADERS_MAX:
        raise ConfigError(f"{file} has more than {HEADERS_MAX} headers", path=setting)
    return headers
