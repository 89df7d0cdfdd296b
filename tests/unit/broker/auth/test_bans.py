"""Bans and their file."""

from __future__ import annotations

import ipaddress
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.broker.auth import bans as module
from perdure.broker.auth import private_file
from perdure.broker.auth.ban_seal import damage_of, is_seal
from perdure.broker.auth.bans import Ban, BanFile, BanList, make_ban
from perdure.errors import ConfigError
from perdure.limits import BAN_REASON_MAX

NOW = 1_700_000_000_000_000
HOUR = 3_600_000_000


def found(bans: BanList, **given: str) -> str:
    """What bans a client; empty = nothing does."""
    asked = {"client_id": "c", "username": None, "address": "10.0.0.1", **given}
    ban = bans.find(now_us=NOW, **asked)  # type: ignore[arg-type]
    return "" if ban is None else f"{ban.kind} {ban.value}"


def body(path: Path) -> str:
    """A ban file without the seal above it."""
    data = path.read_bytes()
    assert not damage_of(data)
    first, _, rest = data.partition(b"\n")
    assert is_seal(first)
    return rest.decode()


def test_each_kind() -> None:
    bans = BanList(
        [
            make_ban("client_id", "bad"),
            make_ban("username", "ada"),
            make_ban("address", "203.0.113.77/24"),
            make_ban("address", "2001:db8::/32"),
            make_ban("address", "198.51.100.4"),
        ]
    )
    assert len(bans) == 5
    assert found(bans) == ""
    assert found(bans, client_id="bad") == "client_id bad"
    assert found(bans, client_id="ada", username="bad") == ""
    assert found(bans, username="ada") == "username ada"
    assert found(bans, address="203.0.113.5") == "address 203.0.113.0/24"
    assert found(bans, address="203.0.114.5") == ""
    assert found(bans, address="::ffff:203.0.113.5") == "address 203.0.113.0/24"
    assert found(bans, address="2001:db8:1::9") == "address 2001:db8::/32"
    assert found(bans, address="2001:db9::9") == ""
    assert found(bans, address="fe80::1%eth0") == ""
    assert found(bans, address="198.51.100.4") == "address 198.51.100.4/32"
    assert found(bans, address="198.51.100.5") == ""
    assert found(bans, address="") == ""


def test_a_mapped_network_is_the_network_that_it_maps() -> None:
    assert make_ban("address", "::ffff:203.0.113.0/120").value == "203.0.113.0/24"
    everyone = BanList([make_ban("address", "0.0.0.0/0")])
    assert found(everyone, address="1.2.3.4")
    assert not found(everyone, address="::1")


def test_it_ends() -> None:
    ban = make_ban("client_id", "c", until_us=NOW + 1)
    forever = make_ban("client_id", "d")
    bans = BanList([ban, forever])
    assert found(bans) == "client_id c"
    assert bans.find(client_id="c", username=None, address="", now_us=NOW + 1) is None
    assert bans.client_ids(NOW) == {"c", "d"}
    assert bans.client_ids(NOW + 1) == {"d"}
    assert (bans.next_end_us(NOW), bans.next_end_us(NOW + 1)) == (NOW + 1, 0)
    assert (bans.in_force(NOW), bans.in_force(NOW + 1)) == (2, 1)


def test_a_network_that_ended_does_not_hide_a_wider_one() -> None:
    bans = BanList(
        [make_ban("address", "10.0.0.0/24", until_us=NOW - 1), make_ban("address", "10.0.0.0/8")]
    )
    assert found(bans) == "address 10.0.0.0/8"


def test_a_later_one_replaces() -> None:
    bans = BanList([make_ban("username", "u", reason="a"), make_ban("username", "u", reason="b")])
    assert [ban.reason for ban in bans] == ["b"]
    assert bans.get("username", "u") is not None
    assert bans.get("client_id", "u") is None


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        ("address", "10.0.0", ""),
        ("address", "", ""),
        ("address", "10.0.0.0/40", ""),
        ("client_id", "", ""),
        ("username", "u" * 65_536, ""),
        ("nickname", "x", ""),
        ("client_id", "c", "r" * (BAN_REASON_MAX + 1)),
    ],
)
def test_no_such_ban(kind: str, value: str, reason: str) -> None:
    with pytest.raises(ConfigError):
        make_ban(kind, value, reason=reason)


@given(
    st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 32)), max_size=8),
    st.integers(0, 2**32 - 1),
)
def test_networks_are_found_as_the_naive_search_finds_them(
    networks: list[tuple[int, int]], number: int
) -> None:
    listed = [ipaddress.IPv4Network(pair, strict=False) for pair in networks]
    bans = BanList(make_ban("address", str(network)) for network in listed)
    for address in (ipaddress.IPv4Address(number), *(net.broadcast_address for net in listed)):
        naive = any(address in network for network in listed)
        assert bool(found(bans, address=str(address))) is naive


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
made = st.builds(
    Ban,
    kind=st.sampled_from(["client_id", "username"]),
    value=texts,
    reason=st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    since_us=st.integers(0, NOW),
    until_us=st.one_of(st.just(0), st.integers(NOW + 1, 2 * NOW)),
)


@settings(max_examples=30)  # each change is synced
@given(st.lists(made, max_size=6, unique_by=lambda ban: (ban.kind, ban.value)))
def test_the_file_keeps_every_ban(
    tmp_path_factory: pytest.TempPathFactory, bans: list[Ban]
) -> None:
    file = BanFile(tmp_path_factory.mktemp("bans") / "bans")
    for ban in bans:
        file.add(ban, now_us=NOW)
    assert list(file.load()) == bans


def test_add_and_remove(tmp_path: Path) -> None:
    file = BanFile(tmp_path / "bans")
    assert len(file.load()) == 0
    file.add(make_ban("client_id", "a", reason="first", since_us=NOW), now_us=NOW)
    kept = file.add(make_ban("address", "10.1.0.0/16", until_us=NOW + HOUR), now_us=NOW)
    assert list(kept) == list(file.load())
    file.add(make_ban("client_id", "a", reason="second"), now_us=NOW)
    assert [ban.reason for ban in file.load()] == ["", "second"]
    bans, was = file.remove("address", "10.1.2.3/16", now_us=NOW)
    assert was
    assert [ban.value for ban in bans] == ["a"]
    assert file.remove("address", "10.1.0.0/16", now_us=NOW)[1] is False
    lines = body(file.path).splitlines()
    assert [json.loads(line) for line in lines] == [{"client_id": "a", "reason": "second"}]


def test_comments_stay_and_what_is_over_goes(tmp_path: Path) -> None:
    file = BanFile(tmp_path / "bans")
    file.path.write_text(
        '# by hand\n\n{"username":"old","until":"2001-01-01T00:00:00Z"}\n{"username":"u"}\n'
    )
    assert len(file.load()) == 2
    file.add(make_ban("client_id", "c"), now_us=NOW)
    assert body(file.path) == '# by hand\n\n{"username":"u"}\n{"client_id":"c"}\n'


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"nonsense", "malformed"),
        (b'{"client_id":"c","address":"10.0.0.1"}', "names one of"),
        (b"{}", "names one of"),
        (b'{"nickname":"c"}', "nickname"),
        (b'{"address":"10.0.0"}', "no address"),
        (b'{"client_id":"c","until":"2h"}', "out of range"),
        (b'{"client_id":"c","until":"soon"}', "expected a time"),
        (b'{"client_id":"\xff"}', "utf-8"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: bytes, told: str) -> None:
    file = BanFile(tmp_path / "bans")
    file.path.write_bytes(b'{"client_id":"a"}\n' + line + b"\n")
    with pytest.raises(ConfigError, match=f"bans:2: .*{told}"):
        file.load()
    with pytest.raises(ConfigError):
        file.add(make_ban("client_id", "b"), now_us=NOW)
    assert file.path.read_bytes().endswith(line + b"\n"), "nothing was lost"


def test_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BANS_MAX", 2)
    file = BanFile(tmp_path / "bans")
    for name in ("a", "b"):
        file.add(make_ban("client_id", name), now_us=NOW)
    with pytest.raises(ConfigError, match="2 bans"):
        file.add(make_ban("client_id", "c"), now_us=NOW)
    file.add(make_ban("client_id", "a", reason="again"), now_us=NOW)
    with file.path.open("a") as text:
        text.write('{"client_id":"d"}\n')
    with pytest.raises(ConfigError, match="more than 2 bans"):
        file.load()
    monkeypatch.setattr(module, "BAN_FILE_BYTES_MAX", 10)
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        file.load()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        BanFile(tmp_path).load()
    with pytest.raises(ConfigError, match="cannot write"):
        BanFile(tmp_path / "no" / "bans").add(make_ban("client_id", "c"), now_us=NOW)


def test_somebody_else_changed_it_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = BanFile(tmp_path / "bans")
    file.add(make_ban("client_id", "a"), now_us=NOW)
    seen = iter([(1, 2, 3), (1, 2, 4)])
    monkeypatch.setattr(private_file, "_identify", lambda _stat: next(seen))
    with pytest.raises(ConfigError, match="changed by someone else"):
        file.add(make_ban("client_id", "b"), now_us=NOW)


def test_many_at_once_and_none_that_is_there_for_longer(tmp_path: Path) -> None:
    file = BanFile(tmp_path / "bans")
    (tmp_path / "bans").write_text("# by hand\n")
    forever, soon = make_ban("client_id", "a"), make_ban("client_id", "a", until_us=5)
    later = make_ban("client_id", "b", until_us=9)
    assert len(file.put([soon, make_ban("client_id", "b", until_us=5)])) == 2
    before = (tmp_path / "bans").read_text()
    assert len(file.put([soon])) == 2
    assert (tmp_path / "bans").read_text() == before
    assert list(file.put([forever, later]).ordered) == [forever, later]
    assert list(file.put([soon]).ordered) == [forever, later]
    assert list(file.load().ordered) == [forever, later]
    for _ in range(2):
        assert len(file.clear("# elsewhere")) == 0
        assert body(tmp_path / "bans") == "# by hand\n# elsewhere\n"


def test_too_many_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.broker.auth.bans.BANS_MAX", 2)
    file = BanFile(tmp_path / "bans")
    with pytest.raises(ConfigError, match="more than 2 bans"):
        file.put(make_ban("client_id", name) for name in "abc")
    assert not (tmp_path / "bans").exists()
