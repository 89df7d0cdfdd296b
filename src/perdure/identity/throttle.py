"""Logins that fail are slowed down: for an address soon, for a name late and never for long.

Who guesses passwords from one address waits ever longer. Who guesses from many for one user slows
that user's login down, by seconds only: nobody is to be kept out by strangers. A login is counted
before its password is checked, so that many at once are counted as well.
"""

from __future__ import annotations

import ipaddress
from typing import Final, final

from perdure.admin.problems import Refused
from perdure.config.units import parse_ip
from perdure.identity.ledger import Ledger

ADDRESS_FREE: Final = 5
ADDRESS_WAIT_MAX_S: Final = 300
NAME_FREE: Final = 20
NAME_WAIT_MAX_S: Final = 30
"""Failures without a wait, and how long a wait becomes; it doubles with each failure."""

FORGET_US: Final = 15 * 60 * 1_000_000
"""After so long without a failure all is forgotten."""

ROWS_MAX: Final = 20_000
"""Names and addresses that are remembered; the oldest go first."""


@final
class Throttle:
    """Counts in the file, so that all processes share it. Methods block.

    Args:
        ledger: the file and the time.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    def charge(self, name: str, address: str) -> None:
        """Count a login that begins.

        Raises:
            Refused: it has to wait; it is not counted.
        """
        now_us = self._ledger.clock.now_us()
        bounds = (
            (_address_key(address), ADDRESS_FREE, ADDRESS_WAIT_MAX_S),
            (_name_key(name), NAME_FREE, NAME_WAIT_MAX_S),
        )
        with self._ledger.file.change() as rows:
            rows.execute("DELETE FROM failures WHERE last_us < ?", (now_us - FORGET_US,))
            waits_us = 0
            for key, free, wait_max_s in bounds:
                found = rows.execute(
                    "SELECT count, last_us FROM failures WHERE key = ?", (key,)
                ).fetchone()
                if found is not None and found[0] >= free:
                    wait_s = min(2 ** min(found[0] - free, 20), wait_max_s)
                    waits_us = max(waits_us, found[1] + wait_s * 1_000_000 - now_us)
            if waits_us > 0:
                raise too_early(-(-waits_us // 1_000_000))
            for key, _, _ in bounds:
                rows.execute(
                    "INSERT INTO failures VALUES (?, 1, ?) ON CONFLICT (key) "
                    "DO UPDATE SET count = count + 1, last_us = excluded.last_us",
                    (key, now_us),
                )
            rows.execute(
                "DELETE FROM failures WHERE key IN (SELECT key FROM failures "
                "ORDER BY last_us DESC LIMIT -1 OFFSET ?)",
                (ROWS_MAX,),
            )

    def clear(self, name: str, address: str) -> None:
        """Forget the failures of somebody who has logged in."""
        keys = (_address_key(address), _name_key(name))
        with self._ledger.file.change() as rows:
            rows.execute("DELETE FROM failures WHERE key IN (?, ?)", keys)


def too_early(wait_s: int) -> Refused:
    """A refusal that says when to come again."""
    return Refused(
        "too_many_requests",
        "too many failed logins",
        hint=f"try again in {wait_s} s",
        details={"retry_after_s": wait_s},
    )


def _name_key(name: str) -> str:
    # Bounded: any text may be tried as a name.
    return f"name:{name[:100]}"


def _address_key(address: str) -> str:
    """An address, of IPv6 the network that one machine has to itself."""
    try:
        parsed = parse_ip(address)
    except ValueError:
        return f"address:{address[:100]}"
    if parsed.version == 6:
        return f"address:{ipaddress.ip_network((parsed, 64), strict=False)}"
    return f"address:{parsed}"
