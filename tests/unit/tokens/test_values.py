"""The forms of a token: they are told apart, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import StorageCorrupt
from perdure.tokens.token import Token, parse_id, show_id
from perdure.tokens.values import (
    expiry_of,
    fields,
    is_stub,
    of_fields,
    pack_short,
    pack_stub,
    unpack_short,
)

ID = bytes(range(20))
NAMES = ("i", "x", "c", "r")
TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)
IDENTITIES = st.one_of(
    TEXT, st.integers(0, 2**70).map(str), st.sampled_from(["00", "-1", "٣", "²"])
)
TOKENS = st.builds(
    Token,
    st.just(ID),
    IDENTITIES,
    st.integers(1, 2**32 - 1),
    st.one_of(st.just(""), TEXT),
    st.lists(TEXT, max_size=3).map(tuple),
)


@given(TOKENS)
def test_a_token_comes_back_from_each_form(token: Token) -> None:
    data = pack_short(token)
    assert unpack_short(ID, data) == token
    assert expiry_of(data) == expiry_of(pack_stub(token)) == token.expires_at
    assert not is_stub(data)
    assert is_stub(pack_stub(token))
    assert of_fields(ID, fields(token, NAMES), NAMES) == token


@pytest.mark.parametrize(
    ("identity", "data"),
    [
        ("0", "00000001 01 00"),
        ("999999", "00000001 01 0f423f"),
        ("9223372036854775807", "00000001 01 7fffffffffffffff"),
        ("9223372036854775808", "00000001 02" + b"9223372036854775808".hex()),
        ("07", "00000001 02 3037"),
        ("ada", "00000001 02 616461"),
    ],
)
def test_the_form_of_planned(identity: str, data: str) -> None:
    assert pack_short(Token(ID, identity, 1)) == bytes.fromhex(data)


@pytest.mark.parametrize(
    "data", [b"", b"1234", b"1234\x00", b"1234\x01", b"1234\x02\xff", b"1234\x03\x93", b"1234\x04"]
)
def test_what_is_no_token_is_told(data: bytes) -> None:
    with pytest.raises(StorageCorrupt):
        unpack_short(ID, data)


@pytest.mark.parametrize("found", [None, [], {}, {"i": 1}, {"i": 1, "x": "soon"}, {"x": 1}])
def test_members_that_are_missing_are_told(found: object) -> None:
    with pytest.raises(StorageCorrupt):
        of_fields(ID, found, NAMES)


@given(st.binary(min_size=20, max_size=20))
def test_an_identifier_is_shown_and_read(token_id: bytes) -> None:
    assert parse_id(show_id(token_id)) == token_id
    assert parse_id(show_id(token_id).upper()) == token_id


@pytest.mark.parametrize("text", ["", "a" * 39, "a" * 41, "g" * 40, " " + "a" * 39, "٣" * 40])
def test_what_is_no_identifier(text: str) -> None:
    assert parse_id(text) is None
