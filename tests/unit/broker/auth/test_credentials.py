"""The credentials file: reading, errors with a line number, changing, and replacing at once."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perdure.broker.auth.credentials import (
    TOKENS_PER_USER_MAX,
    CredentialsFile,
)
from perdure.broker.auth.hashes import Pbkdf2Hash, ScramKeys, TokenHash, scram_keys
from perdure.errors import ConfigError

pytestmark = pytest.mark.usefixtures("cheap_hashes")

SALT = b"0123456789abcdef"
QUICK = Pbkdf2Hash(1, b"salt", hashlib.pbkdf2_hmac("sha512", b"pw", b"salt", 1))
SCRAM = scram_keys("pw", b"salt", iterations=1)


def token(number: int) -> str:
    return f"{number:043d}"


def token_line(number: int) -> str:
    return TokenHash(hashlib.sha256(token(number).encode()).digest()).encode()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users"


def write(path: Path, text: str) -> CredentialsFile:
    path.write_text(text, encoding="utf-8")
    return CredentialsFile.load(path)


def test_one_user_may_have_several_kinds(path: Path) -> None:
    file = write(
        path,
        f"# staff\n\nada:{QUICK.encode()}\r\nada:{SCRAM.encode()}\n"
        f"pump:{token_line(1)}\npump:{token_line(2)}\n",
    )
    assert file.users == ("ada", "pump")
    assert len(file) == 2
    assert "ada" in file
    assert "eve" not in file
    assert file.hashes("ada") == [QUICK, SCRAM]
    assert file.scram_keys("ada") == SCRAM
    assert file.scram_keys("pump") is None
    assert [entry.verify(token(2).encode()) for entry in file.tokens("pump")] == [False, True]
    assert file.entries("eve") == ()
    assert file.tokens("eve") == ()


def test_last_line_needs_no_newline_and_a_bom_is_skipped(path: Path) -> None:
    assert write(path, f"\ufeffada:{QUICK.encode()}").users == ("ada",)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("# x\nada\n", 2, "user:hash"),
        (":$7$1$x$y\n", 1, "user:hash"),
        ("ada:secret\n", 1, "in the clear"),
        (f"ada:{QUICK.encode()}\n\nada:{QUICK.encode()}\n", 3, "two hashes"),
        (
            "".join(f"p:{token_line(n)}\n" for n in range(TOKENS_PER_USER_MAX + 1)),
            TOKENS_PER_USER_MAX + 1,
            "tokens",
        ),
    ],
)
def test_bad_line_is_named(path: Path, text: str, line: int, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as error:
        write(path, text)
    assert error.value.message.startswith(f"{path}:{line}: ")
    assert "secret" not in error.value.message


def test_line_that_is_not_utf8_is_named(path: Path) -> None:
    path.write_bytes(b"# one\n\xff\xfe:x\n")
    with pytest.raises(ConfigError, match=f"{path}:2: not UTF-8"):
        CredentialsFile.load(path)


def test_missing_or_unreadable_file(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        CredentialsFile.load(path)
    assert len(CredentialsFile.load(path, missing_ok=True)) == 0
    with pytest.raises(ConfigError, match="cannot read"):
        CredentialsFile.load(tmp_path)


def test_file_that_is_too_large(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.broker.auth.credentials.CREDENTIALS_FILE_BYTES_MAX", 4)
    write(path, "# ok")
    with pytest.raises(ConfigError, match="larger than 4 bytes"):
        write(path, "# not")


@pytest.mark.slow
def test_set_password_replaces_every_former_hash_and_keeps_the_rest(path: Path) -> None:
    file = write(
        path,
        f"# staff\nada:{QUICK.encode()}\nbob:{QUICK.encode()}\nada:{SCRAM.encode()}\n"
        f"ada:{token_line(1)}\n# end\n",
    )
    file.set_password("ada", "new", salt=SALT, schemes=("scram-sha-256", "pbkdf2-sha512"))
    file.save()
    again = CredentialsFile.load(path)
    kinds = [type(entry) for entry in again.entries("ada")]
    assert kinds == [ScramKeys, Pbkdf2Hash, TokenHash]
    assert not any(entry.verify(b"pw") for entry in again.entries("ada"))
    assert all(entry.verify(b"new") for entry in again.hashes("ada"))
    assert again.hashes("bob") == [QUICK]
    lines = path.read_text().splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "# staff",
        "ada",
        "ada",
        "ada",
        "bob",
        "# end",
    ]


@pytest.mark.slow
def test_new_user_goes_to_the_end_with_scrypt(path: Path) -> None:
    file = CredentialsFile.load(path, missing_ok=True)
    file.set_password("ada", "pw", salt=SALT)
    file.save()
    (entry,) = CredentialsFile.load(path).entries("ada")
    assert entry.encode().startswith("$scrypt$")
    assert entry.verify(b"pw")


@pytest.mark.parametrize("user", ["", "a:b", "#a", "a\nb", "a\x00"])
def test_names_that_a_line_cannot_hold(path: Path, user: str) -> None:
    file = CredentialsFile(path)
    with pytest.raises(ConfigError):
        file.set_password(user, "pw", salt=SALT)
    with pytest.raises(ConfigError):
        file.add_token(user, token(1))


def test_passwords_that_are_refused(path: Path) -> None:
    file = CredentialsFile(path)
    with pytest.raises(ConfigError, match="empty"):
        file.set_password("ada", "", salt=SALT)
    with pytest.raises(ConfigError, match="SCRAM"):
        file.set_password("ada", "\u0007", salt=SALT, schemes=("scram-sha-256",))
    with pytest.raises(ValueError, match="16 bytes"):
        file.set_password("ada", "pw", salt=b"short")
    assert len(file) == 0


def test_tokens_are_added_and_withdrawn(path: Path) -> None:
    file = write(path, f"pump:{QUICK.encode()}\n")
    for number in range(TOKENS_PER_USER_MAX):
        file.add_token("pump", token(number))
    file.add_token("pump", token(0))
    assert len(file.tokens("pump")) == TOKENS_PER_USER_MAX
    with pytest.raises(ConfigError, match="tokens"):
        file.add_token("pump", token(99))
    assert file.delete_tokens("pump") == TOKENS_PER_USER_MAX
    assert file.delete_tokens("pump") == 0
    assert file.entries("pump") == (QUICK,)
    with pytest.raises(ValueError, match="characters"):
        file.add_token("pump", "short")
    file.add_token("lamp", token(1))
    assert file.delete_tokens("lamp") == 1
    assert "lamp" not in file


def test_delete(path: Path) -> None:
    file = write(path, f"ada:{QUICK.encode()}\nbob:{QUICK.encode()}\nada:{token_line(1)}\n")
    assert file.delete("ada")
    assert not file.delete("ada")
    file.save()
    assert CredentialsFile.load(path).users == ("bob",)


def test_save_is_private_and_leaves_no_other_file(path: Path) -> None:
    path.write_text(f"ada:{QUICK.encode()}\n")
    path.chmod(0o644)
    file = CredentialsFile.load(path)
    file.delete("ada")
    file.save()
    file.add_token("pump", token(1))
    file.save()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in path.parent.iterdir()] == ["users"]


def test_save_writes_through_a_link(path: Path) -> None:
    path.write_text("")
    link = path.parent / "link"
    link.symlink_to(path)
    file = CredentialsFile.load(link)
    file.add_token("pump", token(1))
    file.save()
    assert link.is_symlink()
    assert CredentialsFile.load(path).users == ("pump",)


def test_save_does_not_undo_what_another_did(path: Path) -> None:
    path.write_text("")
    mine = CredentialsFile.load(path)
    other = CredentialsFile.load(path)
    other.add_token("pump", token(1))
    other.save()
    mine.add_token("lamp", token(2))
    with pytest.raises(ConfigError, match="meanwhile"):
        mine.save()
    assert CredentialsFile.load(path).users == ("pump",)


def test_new_file_does_not_replace_one_that_appeared(path: Path) -> None:
    mine = CredentialsFile.load(path, missing_ok=True)
    path.write_text("# theirs\n")
    with pytest.raises(ConfigError, match="meanwhile"):
        mine.save()


def test_failed_save_keeps_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("# old\n")
    file = CredentialsFile.load(path)
    file.add_token("pump", token(1))

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        file.save()
    assert path.read_text() == "# old\n"
    assert [entry.name for entry in path.parent.iterdir()] == ["users"]


def test_decoys_are_one_of_each_cost_and_the_most_common_first(path: Path) -> None:
    slow = Pbkdf2Hash(7, b"salt", bytes(32))
    file = write(
        path,
        f"a:{QUICK.encode()}\nb:{slow.encode()}\nc:{slow.encode()}\nd:{token_line(1)}\n",
    )
    assert file.decoys() == (slow, QUICK)
    assert CredentialsFile(path).decoys() == ()


def test_scram_iterations_are_those_of_most(path: Path) -> None:
    few = scram_keys("pw", b"salt", iterations=2).encode()
    many = scram_keys("pw", b"salt", iterations=3).encode()
    assert write(path, f"a:{few}\nb:{many}\nc:{many}\nd:{QUICK.encode()}\n").scram_iterations() == 3
    assert CredentialsFile(path).scram_iterations() == 4096
    assert not write(path, f"d:{QUICK.encode()}\n").has_scram()
    assert write(path, f"d:{QUICK.encode()}\na:{few}\n").has_scram()


names = st.text(st.characters(codec="utf-8", exclude_characters=":\r\n"), min_size=1).filter(
    lambda name: not name.startswith(("#", "\ufeff")) and bool(name.strip())
)


@settings(max_examples=30)
@given(st.lists(st.tuples(names, st.integers(0, 3)), max_size=12))
def test_file_is_a_map_from_users_to_entries(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int]]
) -> None:
    path = tmp_path_factory.mktemp("map") / "users"
    file = CredentialsFile(path)
    model: dict[str, set[str]] = {}
    for user, number in operations:
        if number == 0:
            assert file.delete(user) is (model.pop(user, None) is not None)
        elif user.isprintable():
            file.add_token(user, token(number))
            model.setdefault(user, set()).add(token_line(number))
    file.save()
    again = CredentialsFile.load(path)
    assert {user: {e.encode() for e in again.entries(user)} for user in again.users} == model
