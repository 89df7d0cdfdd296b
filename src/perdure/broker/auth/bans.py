"""Who may not connect: bans of client identifiers, user names and addresses, and their file.

One ban is one line of JSON; a line that begins with ``#`` is a comment, and the first one of a file
that the broker has written its seal (``ban_seal``)::

    {"client_id": "pump-7", "reason": "floods", "since": "2026-11-20T08:00:00Z"}
    {"username": "ada", "until": "2026-12-01T00:00:00Z"}
    {"address": "203.0.113.0/24"}

It must not know connections, sessions or timers: the time is an argument. The lists here never
change; who changes a ban makes a new list.

Invariant: there is one ban for each kind and value, and a ban that is over bans nobody, whether or
not somebody has taken it off the list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias, final

import msgspec

from perdure.broker.auth.ban_seal import HINT, damage_of, is_seal, sealed
from perdure.broker.auth.private_file import Identity, read_file, save_file
from perdure.config.units import IpNetwork, format_time, parse_ip, parse_network, parse_time
from perdure.errors import ConfigError
from perdure.limits import BAN_FILE_BYTES_MAX, BAN_REASON_MAX, BANS_MAX, UTF8_STRING_BYTES_MAX

BanKind: TypeAlias = Literal["client_id", "username", "address"]
KINDS: Final[tuple[BanKind, ...]] = ("client_id", "username", "address")


@final
class Ban(msgspec.Struct, frozen=True):
    """One ban; made by ``make_ban``.

    Attributes:
        kind: of what.
        value: client identifier, user name, or network (``203.0.113.0/24``).
        reason: for operators; the client does not hear it.
        since_us: wall time at which it was made; 0 = unknown.
        until_us: wall time at which it ends; 0 = never.
    """

    kind: BanKind
    value: str
    reason: str = ""
    since_us: int = 0
    until_us: int = 0

    def is_over(self, now_us: int) -> bool:
        """Whether it has ended."""
        return 0 < self.until_us <= now_us

    def outlasts(self, other: Ban) -> bool:
        """Whether it holds for as long as another one, at least."""
        return not self.until_us or 0 < other.until_us <= self.until_us


def make_ban(
    kind: str, value: str, *, reason: str = "", since_us: int = 0, until_us: int = 0
) -> Ban:
    """Check what makes a ban, and bring an address into its one form.

    Raises:
        ConfigError: something of it cannot be used.
    """
    if kind == "address":
        value = str(_network(value))
    elif kind not in KINDS:
        raise ConfigError(f"nothing can be banned by {kind!r}", hint=", ".join(KINDS))
    if not value or len(value.encode()) > UTF8_STRING_BYTES_MAX:
        raise ConfigError(f"a {kind} has 1 to {UTF8_STRING_BYTES_MAX} bytes")
    if len(reason) > BAN_REASON_MAX:
        raise ConfigError(f"a reason has at most {BAN_REASON_MAX} characters")
    found: BanKind = next(known for known in KINDS if known == kind)
    return Ban(found, value, reason, since_us, until_us)


def _network(text: str) -> IpNetwork:
    try:
        return parse_network(text)
    except ValueError as error:
        raise ConfigError(f"{error}", hint="such as 203.0.113.7 or 2001:db8::/48") from None


@final
class TemporaryBan(msgspec.Struct, frozen=True):
    """A ban that the broker has made by itself, for a while.

    Attributes:
        kind: ``login`` (a user name from an address) or ``client_id``.
        value: as it is lifted.
        reason: what brought it.
        since_us, until_us: wall times.
    """

    kind: str
    value: str
    reason: str
    since_us: int
    until_us: int


@final
class BanList:
    """Bans, and the questions about them.

    Args:
        bans: a later one of the same kind and value replaces an earlier one.
    """

    __slots__ = ("_bans", "_clients", "_networks", "_ordered", "_users")

    def __init__(self, bans: Iterable[Ban] = ()) -> None:
        self._ordered: tuple[Ban, ...] | None = None
        self._bans = {(ban.kind, ban.value): ban for ban in bans}
        self._clients: dict[str, Ban] = {}
        self._users: dict[str, Ban] = {}
        # Version and prefix length -> the network's own bits -> ban: so a look-up costs as many
        # steps as there are lengths, not as there are networks.
        self._networks: dict[tuple[int, int], dict[int, Ban]] = {}
        for ban in self._bans.values():
            if ban.kind == "client_id":
                self._clients[ban.value] = ban
            elif ban.kind == "username":
                self._users[ban.value] = ban
            else:
                network = _network(ban.value)
                bits = int(network.network_address) >> (network.max_prefixlen - network.prefixlen)
                place = (network.version, network.prefixlen)
                self._networks.setdefault(place, {})[bits] = ban

    def __len__(self) -> int:
        return len(self._bans)

    def __iter__(self) -> Iterator[Ban]:
        return iter(self._bans.values())

    @property
    def ordered(self) -> tuple[Ban, ...]:
        """All of them by kind and value; put in order once for all who look."""
        if self._ordered is None:
            # Texts alone are put in order ten times as fast as pairs.
            of_kind: dict[BanKind, list[str]] = {}
            for kind, value in self._bans:
                of_kind.setdefault(kind, []).append(value)
            self._ordered = tuple(
                self._bans[kind, value]
                for kind in sorted(of_kind)
                for value in sorted(of_kind[kind])
            )
        return self._ordered

    def get(self, kind: str, value: str) -> Ban | None:
        """The ban of exactly this."""
        return next(
            (
                found
                for known in KINDS
                if known == kind and (found := self._bans.get((known, value)))
            ),
            None,
        )

    def find(
        self, *, client_id: str, username: str | None, address: str, now_us: int
    ) -> Ban | None:
        """A ban that keeps such a client out; None = it may come."""
        if not self._bans:
            return None
        ban = self._clients.get(client_id)
        if ban is not None and not ban.is_over(now_us):
            return ban
        if username is not None:
            ban = self._users.get(username)
            if ban is not None and not ban.is_over(now_us):
                return ban
        return self._find_address(address, now_us) if self._networks else None

    def _find_address(self, text: str, now_us: int) -> Ban | None:
        try:
            address = parse_ip(text)
        except ValueError:
            return None  # a Unix socket, or no address at all
        number = int(address)
        for (version, length), bans in self._networks.items():
            if version == address.version:
                ban = bans.get(number >> (address.max_prefixlen - length))
                if ban is not None and not ban.is_over(now_us):
                    return ban
        return None

    def client_ids(self, now_us: int) -> frozenset[str]:
        """Banned client identifiers."""
        return frozenset(name for name, ban in self._clients.items() if not ban.is_over(now_us))

    def usernames(self) -> frozenset[str]:
        """Banned user names, those whose ban is over included."""
        return frozenset(self._users)

    def in_force(self, now_us: int) -> int:
        """Number of bans that are not over."""
        return sum(not ban.is_over(now_us) for ban in self._bans.values())

    def next_end_us(self, now_us: int) -> int:
        """When the next ban ends; 0 = none does."""
        ends = [ban.until_us for ban in self._bans.values() if ban.until_us > now_us]
        return min(ends, default=0)


@final
class _Line(
    msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, kw_only=True
):
    """A ban as it stands in the file."""

    client_id: str = ""
    username: str = ""
    address: str = ""
    reason: str = ""
    since: str = ""
    until: str = ""


def ban_line(ban: Ban) -> str:
    """A ban as a line of the file."""
    line = _Line(
        client_id=ban.value if ban.kind == "client_id" else "",
        username=ban.value if ban.kind == "username" else "",
        address=ban.value if ban.kind == "address" else "",
        reason=ban.reason,
        since=format_time(ban.since_us) or "",
        until=format_time(ban.until_us) or "",
    )
    return msgspec.json.encode(line).decode()


def ban_of(text: str) -> Ban:
    """The ban that a line has.

    Raises:
        ConfigError, ValueError, msgspec.DecodeError: it has none.
    """
    line = msgspec.json.decode(text, type=_Line)
    named = [(kind, value) for kind in KINDS if (value := getattr(line, kind))]
    if len(named) != 1:
        raise ValueError(f"a ban names one of {', '.join(KINDS)}")
    ((kind, value),) = named
    # At the beginning of time "2h" is no moment: the file has moments only.
    since_us, until_us = (parse_time(at, 0) if at else 0 for at in (line.since, line.until))
    return make_ban(kind, value, reason=line.reason, since_us=since_us, until_us=until_us)


@final
class BanFile:
    """The file of a broker's bans.

    Args:
        path: no file is an empty one.
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        self.path = path

    def load(self) -> BanList:
        """Read the file.

        Raises:
            ConfigError: it cannot be read, or a line is wrong (``file:line`` in the text).
        """
        lines, _ = self._read()
        return BanList(ban for _, ban in lines if ban is not None)

    def add(self, ban: Ban, *, now_us: int) -> BanList:
        """Add a ban, or replace the one of the same kind and value; durable when this returns.

        Bans that are over are taken out on the way, comments stay.

        Raises:
            ConfigError: the file cannot be read or written, or holds too many.
        """
        return self._change(ban, ban, now_us)[0]

    def remove(self, kind: str, value: str, *, now_us: int) -> tuple[BanList, bool]:
        """Take a ban back; durable when this returns. Returns whether there was one.

        Raises:
            ConfigError: the file cannot be read or written, or there can be no such ban.
        """
        return self._change(make_ban(kind, value), None, now_us)

    def put(self, bans: Iterable[Ban]) -> BanList:
        """Add bans, but for those that are there for as long; durable when this returns.

        Raises:
            ConfigError: the file cannot be read or written, or would hold too many.
        """
        lines, identity = self._read()
        there = {(ban.kind, ban.value): ban for _, ban in lines if ban is not None}
        new = {
            (ban.kind, ban.value): ban
            for ban in bans
            if (ban.kind, ban.value) not in there or not there[ban.kind, ban.value].outlasts(ban)
        }
        kept = [
            (text, ban) for text, ban in lines if ban is None or (ban.kind, ban.value) not in new
        ]
        kept += [(ban_line(ban), ban) for ban in new.values()]
        found = [ban for _, ban in kept if ban is not None]
        if len(found) > BANS_MAX:
            raise ConfigError(
                f"{self.path} would have more than {BANS_MAX} bans",
                hint="ban a network instead of its hosts",
            )
        if new:
            self._save([text for text, _ in kept], identity)
        return BanList(found)

    def clear(self, comment: str) -> BanList:
        """Take all bans out, and say where they are; durable when this returns.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        lines, identity = self._read()
        kept = [text for text, ban in lines if ban is None and text != comment]
        self._save([*kept, comment], identity)
        return BanList()

    def _save(self, lines: list[str], identity: Identity | None) -> None:
        data = "".join(f"{text}\n" for text in lines).encode()
        save_file(self.path, sealed(data), read=identity)

    def _change(self, old: Ban, new: Ban | None, now_us: int) -> tuple[BanList, bool]:
        lines, identity = self._read()
        kept: list[str] = []
        bans: list[Ban] = []
        found = False
        for text, ban in lines:
            if ban is not None:
                if (ban.kind, ban.value) == (old.kind, old.value):
                    found = True
                    continue
                if ban.is_over(now_us):
                    continue
                bans.append(ban)
            kept.append(text)
        if new is not None:
            bans.append(new)
            kept.append(ban_line(new))
            if len(bans) > BANS_MAX:
                raise ConfigError(
                    f"{self.path} has {BANS_MAX} bans", hint="ban a network instead of its hosts"
                )
        elif not found:
            return BanList(bans), False
        self._save(kept, identity)
        return BanList(bans), found

    def _read(self) -> tuple[list[tuple[str, Ban | None]], Identity | None]:
        """All lines with their bans, and which state of the file they are."""
        try:
            data, identity = read_file(self.path, name="ban file", bytes_max=BAN_FILE_BYTES_MAX)
        except FileNotFoundError:
            return [], None
        damage = damage_of(data)
        if damage:
            raise ConfigError(f"{self.path} is damaged: {damage}", hint=HINT)
        found: list[tuple[str, Ban | None]] = []
        for number, raw in enumerate(data.splitlines(), start=1):
            if is_seal(raw):
                continue
            try:
                text = raw.decode()
                plain = not text.strip() or text.startswith("#")
                found.append((text, None if plain else ban_of(text)))
            except ConfigError as error:
                raise ConfigError(
                    f"{self.path}:{number}: {error.message}", hint=error.hint
                ) from None
            except ValueError as error:
                raise ConfigError(
                    f"{self.path}:{number}: {error}",
                    hint="`perdure bans add` writes such lines; # begins a comment",
                ) from None
        if sum(ban is not None for _, ban in found) > BANS_MAX:
            raise ConfigError(f"{self.path} has more than {BANS_MAX} bans")
        return found, identity
