"""The send window on its own: identifiers, places, and what a lost connection does to them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from perdure.errors import UsageError
from perdure.mqtt.client_window import Outgoing, SendWindow, check_allowed, size_bound
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Properties, Publish


def _open(window: SendWindow, receive_maximum: int = 65_535) -> list[int]:
    return window.open(session_present=True, receive_maximum=receive_maximum)


def test_nothing_goes_out_before_the_server_has_answered() -> None:
    window = SendWindow()
    window.offer(Publish("a", b"", 1))
    assert window.take() is None
    _open(window)
    entry = window.take()
    assert entry is not None
    assert entry.publish.packet_id == 1
    window.close()
    assert window.take() is None


def test_requests_take_identifiers_that_no_message_has() -> None:
    window = SendWindow()
    _open(window)
    window.offer(Publish("a", b"", 1))
    window.take()
    assert window.request_id() == 2
    assert window.answered(2)
    assert not window.answered(2)
    assert not window.answered(1)


def test_all_identifiers_in_use() -> None:
    window = SendWindow()
    _open(window)
    for number in range(65_535):
        assert window.request_id() == number + 1
    with pytest.raises(UsageError):
        window.request_id()
    window.offer(Publish("a", b"", 1))
    assert window.take() is None
    assert window.answered(77)
    entry = window.take()
    assert entry is not None
    assert entry.publish.packet_id == 77


def test_requests_end_with_the_connection() -> None:
    window = SendWindow()
    _open(window)
    packet_id = window.request_id()
    window.close()
    assert not window.answered(packet_id)


def test_what_is_published_anew_goes_before_what_waits() -> None:
    window = SendWindow()
    _open(window, 2)
    handles = [window.offer(Publish("a", b"", 1)) for _ in range(4)]
    window.take()
    window.take()
    window.close()
    assert window.open(session_present=False, receive_maximum=65_535) == []
    taken = [window.take() for _ in range(4)]
    assert [entry.handle for entry in taken if entry is not None] == handles


@given(
    topic=st.text(st.characters(exclude_characters="\0+#", exclude_categories=["Cs"]), min_size=1),
    payload=st.sampled_from([0, 1, 100, 127, 128, 16_000, 16_383, 3_000_000]),
    forward=st.sampled_from([0, 118, 120, 127, 16_375]),
    alias=st.integers(0, 65_535),
    expiry_s=st.integers(-1, 5),
)
def test_the_size_bound_is_never_too_small(
    topic: str, payload: int, forward: int, alias: int, expiry_s: int
) -> None:
    carried = b"\x09" + (forward - 3).to_bytes(2, "big") + b"c" * (forward - 3) if forward else b""
    publish = Publish(topic, b"x" * payload, 1, False, False, 1, alias, expiry_s, carried)
    assert size_bound(publish) >= len(encode(publish, 5))


def test_the_size_limit_counts_every_byte() -> None:
    for size in range(1, 60):
        publish = Publish("ü", b"x" * size, 1, expiry_s=1, forward=b"\x01\x01")
        # 2 fixed header, 4 topic, 2 identifier, 1 length, 5 expiry, 2 forwarded
        whole = 2 + 4 + 2 + 1 + 5 + 2 + size
        check_allowed(publish, Properties(maximum_packet_size=whole), 5)
        with pytest.raises(Exception, match="more than the server takes"):
            check_allowed(publish, Properties(maximum_packet_size=whole - 1), 5)
        assert publish.packet_id == 0


class WindowModel(RuleBasedStateMachine):
    """Messages go through the window while connections come and go, against a plain model."""

    def __init__(self) -> None:
        super().__init__()
        self.window = SendWindow()
        self.is_open = False
        self.maximum = 0
        self.offered: list[int] = []
        self.settled: set[int] = set()
        self.out: dict[int, Outgoing] = {}  # on the wire of this connection
        self.known: dict[int, Outgoing] = {}  # identifier -> in flight, over connections

    @rule(qos=st.integers(1, 2))
    def offer(self, qos: int) -> None:
        self.offered.append(self.window.offer(Publish("a", b"x", qos)))

    @precondition(lambda self: not self.is_open)
    @rule(present=st.booleans(), maximum=st.integers(1, 4))
    def connect(self, present: bool, maximum: int) -> None:
        settled = self.window.open(session_present=present, receive_maximum=maximum)
        self.is_open, self.maximum = True, maximum
        if present:
            assert settled == []
        else:
            assert settled == [e.handle for e in self.known.values() if e.released]
            self.settled.update(settled)
            self.known.clear()

    @rule()
    def cut(self) -> None:
        self.window.close()
        self.is_open = False
        self.out.clear()

    @rule()
    def send(self) -> None:
        entry = self.window.take()
        if entry is None:
            return
        assert self.is_open
        packet_id = entry.publish.packet_id
        assert 1 <= packet_id <= 65_535
        if packet_id in self.known:
            assert self.known[packet_id] is entry
            assert entry.released or entry.publish.dup
        else:
            assert not entry.publish.dup
            self.known[packet_id] = entry
        assert entry.handle not in self.settled
        self.out[packet_id] = entry

    @precondition(lambda self: self.out)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        packet_id = data.draw(st.sampled_from(sorted(self.out)))
        entry = self.window.find(packet_id)
        assert entry is self.out[packet_id]
        if entry.publish.qos == 2 and not entry.released:
            self.window.release(entry)
        else:
            self.window.settle(entry)
            self.settled.add(entry.handle)
            del self.out[packet_id], self.known[packet_id]

    @invariant()
    def counts_agree(self) -> None:
        assert self.window.unsettled_count == len(self.offered) - len(self.settled)
        places = [entry for entry in self.out.values() if entry.counted]
        assert len(places) <= max(self.maximum, 0)


TestWindowModel = WindowModel.TestCase
TestWindowModel.settings = settings(max_examples=60, stateful_step_count=40)
