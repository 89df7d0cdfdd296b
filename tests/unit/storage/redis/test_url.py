"""What a URL says, and what is wrong with it, without telling the password."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.errors import ConfigError
from perdure.storage.redis.url import RedisAddress, TlsOptions, parse_url


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://localhost", RedisAddress((("localhost", 6379),))),
        ("redis://:s%40p@h:1/7", RedisAddress((("h", 1),), password="s@p", database=7)),
        ("redis://u:p@[::1]:9", RedisAddress((("::1", 9),), username="u", password="p")),
        (
            "redis+cluster://u:p@a,[::2]:3,[::1]",
            RedisAddress(
                (("a", 6379), ("::2", 3), ("::1", 6379)), username="u", password="p", cluster=True
            ),
        ),
        ("redis+cluster://a,b:7", RedisAddress((("a", 6379), ("b", 7)), cluster=True)),
        (
            "rediss://h?ca=/c.pem&verify=no",
            RedisAddress((("h", 6379),), tls=TlsOptions(ca="/c.pem", verify=False)),
        ),
        (
            "rediss+cluster://h/0?certificate=c&key=k",
            RedisAddress((("h", 6379),), cluster=True, tls=TlsOptions(certificate="c", key="k")),
        ),
    ],
)
def test_a_url_is_read(url: str, address: RedisAddress) -> None:
    assert parse_url(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "http://h",
        "redis://",
        "redis://:secret@",
        "redis://h:0x",
        "redis://h:70000",
        "redis://a,b",
        "redis://h/x",
        "redis+cluster://h/1",
        "redis://h?ca=x",
        "rediss://h?what=x",
        "rediss://h?verify=maybe",
        "redis://[::1",
        "redis+cluster://a,x[::1]",
        "h:1",
        "",
    ],
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_url(url)
    assert "secret" not in refused.value.message


def test_a_password_is_never_shown() -> None:
    address = parse_url("rediss+cluster://user:secret@a:1,[::2]:3")
    assert address.shown == "rediss+cluster://user:***@a:1,[::2]:3"
    assert "secret" not in repr(address)
    assert parse_url("redis://h:1/2").shown == "redis://h:1/2"


def test_certificates_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="certificates for Redis"):
        TlsOptions(ca=str(tmp_path / "none.pem")).context()
    (tmp_path / "rubbish.pem").write_text("no certificate", encoding="utf-8")
    with pytest.raises(ConfigError, match="certificates for Redis"):
        TlsOptions(certificate=str(tmp_path / "rubbish.pem")).context()


def test_trust_may_be_given_up() -> None:
    context = TlsOptions(verify=False).context()
    assert not context.check_hostname
    assert TlsOptions().context().check_hostname
