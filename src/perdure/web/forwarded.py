"""Where a request comes from when a proxy stands before us.

A proxy adds whom it has heard to the end of ``X-Forwarded-For``; what stands before that is what
others say. So the header is read from its end, and no further than the first address that is not
of a proxy of ours. Who is no such proxy is not asked.
"""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from typing import Any, Final, final

from perdure.config.units import IpAddress, IpNetwork, parse_ip, parse_network
from perdure.errors import ConfigError

HEADER: Final = b"x-forwarded-for"


def networks_of(texts: Sequence[str]) -> tuple[IpNetwork, ...]:
    """The networks that ``http.proxies`` names.

    Raises:
        ConfigError: one is none.
    """
    try:
        return tuple(map(parse_network, texts))
    except ValueError as error:
        raise ConfigError(
            f"{error}", path="http.proxies", hint="addresses or networks, such as 10.0.0.0/8"
        ) from error


@final
class Forwarded:
    """Finds out who has sent a request.

    Args:
        proxies: their addresses and networks.
    """

    def __init__(self, proxies: Sequence[str]) -> None:
        self._networks = networks_of(proxies)

    def settle(self, scope: MutableMapping[str, Any]) -> None:
        """Put the address of the client into ``scope`` in the place of the proxy's."""
        client = scope.get("client")
        if not self._networks or not client or not self._is_proxy(address_of(client[0])):
            return
        headers = [value for name, value in scope["headers"] if name == HEADER]
        named = b",".join(headers).decode("latin-1").split(",")
        for text in reversed(named):
            address = address_of(text)
            if address is None:
                return  # it ends here, or somebody has made it up
            scope["client"] = (str(address), 0)
            if not self._is_proxy(address):
                return

    def _is_proxy(self, address: IpAddress | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def address_of(text: str) -> IpAddress | None:
    """An address, with or without a port; None = it is none."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        return parse_ip(text)
    except ValueError:
        return None
