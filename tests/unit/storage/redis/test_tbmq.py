"""Keys of TBMQ, and whose they are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.model import Message
from perdure.storage.device_queue import NewEntry
from perdure.storage.redis.commands import slot_of
from perdure.storage.redis.tbmq import TbmqLayout, packet_id_of

names = st.text(alphabet=st.sampled_from("{}_a/ messages"), max_size=20)


@given(st.sampled_from(["", "p:", "{p}"]), names)
def test_every_key_of_a_queue_says_whose_it_is(prefix: str, client_id: str) -> None:
    layout = TbmqLayout(prefix)
    base = f"{prefix}{{{client_id}}}"
    for suffix in ("_messages", "_last_packet_id", "_perdure"):
        assert layout.client_id((base + suffix).encode()) == client_id


@pytest.mark.parametrize(
    "key",
    [b"{c}_messages_7", b"c_messages", b"{c}", b"_messages", b"{_messages", b"{\xff}_perdure"],
)
def test_other_keys_are_none_of_them(key: bytes) -> None:
    assert TbmqLayout().client_id(key) is None


def test_keys_are_those_of_tbmq() -> None:
    layout = TbmqLayout("p:")
    new = NewEntry("a b/{c}", Message("t", b""), 1)
    command = layout.append("a b/{c}", [new], limit=5)
    assert command.args[:2] == (b"EVALSHA", command.args[1])
    assert command.args[2:6] == (
        3,
        b"p:{a b/{c}}_messages",
        b"p:{a b/{c}}_last_packet_id",
        b"p:{a b/{c}}_perdure",
    )
    assert layout.member("c", 65_535) == b"p:{c}_messages_65535"
    assert packet_id_of(b"p:{c}_messages_65535") == 65_535
    assert packet_id_of(b"p:{c}_messages_") == 0


@given(names)
def test_in_a_cluster_all_keys_of_a_queue_are_in_one_slot(client_id: str) -> None:
    layout = TbmqLayout()
    base = f"{{{client_id}}}".encode()
    try:
        layout.check_client(client_id)
    except UsageError:
        assert base.startswith(b"{}")
    else:
        keys = [base + suffix for suffix in (b"_messages", b"_last_packet_id", b"_messages_1")]
        assert len({slot_of(key) for key in keys}) == 1


def test_a_glob_in_the_prefix_is_no_glob() -> None:
    assert TbmqLayout("a*").pattern == b"a\\*{*}_*"
