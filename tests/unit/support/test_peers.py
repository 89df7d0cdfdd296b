"""The peers must see every fault of a broker that is planted in the bytes they are given."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.support import packets
from tests.support.delivery import Ledger, Stamp, audit
from tests.support.packets import Packet, Publication, Splitter
from tests.support.peers import PACKET_ID_MAX, Publisher, Subscriber

NEW, RESUMED = b"\x20\x02\x00\x00", b"\x20\x02\x01\x00"
TOPIC = "t"


def publisher(ledger: Ledger | None = None) -> Publisher:
    """A 3.1.1 publisher that is connected for the first time."""
    peer = Publisher("p", protocol=4, ledger=ledger or Ledger(), clock=lambda: 1, payload_size=0)
    peer.connect()
    assert peer.receive(NEW) == b""
    return peer


def subscriber(hold: float = 0.0) -> Subscriber:
    """A 3.1.1 subscriber that is connected and subscribed."""
    peer = Subscriber("s", [("#", 2)], protocol=4, chance=random.Random(1), hold=hold)
    peer.connect()
    assert peer.receive(NEW) == packets.subscribe(1, [("#", 2)], protocol=4)
    peer.receive(b"\x90\x03\x00\x01\x02")
    return peer


def resume(peer: Publisher | Subscriber) -> bytes:
    """Cut the connection and make a new one; returns what the peer sends after CONNACK."""
    peer.connect()
    return peer.receive(RESUMED)


def delivery(number: int, packet_id: int, *, qos: int = 1, dup: bool = False) -> bytes:
    """PUBLISH of a stamped message."""
    payload = Stamp("p", number).encode()
    return packets.publish(TOPIC, payload, qos=qos, packet_id=packet_id, dup=dup, protocol=4)


def answer(kind: int, packet_id: int) -> bytes:
    return packets.acknowledgement(kind, packet_id)


def sent(data: bytes) -> list[Publication | Packet]:
    """What these bytes are."""
    return [
        packets.read_publish(packet, protocol=4) if packet.kind == packets.PUBLISH else packet
        for packet in Splitter().feed(data)
    ]


class TestPublisher:
    def test_a_puback_ends_a_qos_1_exchange(self) -> None:
        ledger = Ledger()
        peer = publisher(ledger)
        peer.publish(TOPIC, qos=1)
        assert peer.receive(answer(packets.PUBACK, 1)) == b""
        assert (ledger.acknowledged_count, peer.under_way, peer.breaches) == (1, {}, [])

    def test_a_qos_2_message_counts_as_acknowledged_from_its_pubrec(self) -> None:
        ledger = Ledger()
        peer = publisher(ledger)
        peer.publish(TOPIC, qos=2)
        assert peer.receive(answer(packets.PUBREC, 1)) == answer(packets.PUBREL, 1)
        assert ledger.acknowledged_count == 1
        assert peer.receive(answer(packets.PUBCOMP, 1)) == b""
        assert (peer.under_way, peer.breaches) == ({}, [])

    def test_after_a_cut_everything_under_way_goes_out_again_in_order(self) -> None:
        peer = publisher()
        for qos in (1, 2, 2):
            peer.publish(TOPIC, qos=qos)
        peer.receive(answer(packets.PUBREC, 2))
        first, release, third = sent(resume(peer))
        assert isinstance(first, Publication)
        assert isinstance(third, Publication)
        # A QoS 1 copy says which attempt it is; a QoS 2 packet is the same but for DUP.
        assert (first.packet_id, first.dup, first.payload) == (1, True, b"p 1 1 ")
        assert release == Packet(packets.PUBREL, 2, b"\x00\x02")
        assert (third.packet_id, third.dup, third.payload) == (3, True, b"p 3 0 ")

    @pytest.mark.parametrize(
        ("qos", "data"),
        [
            (1, answer(packets.PUBREC, 1)),
            (1, answer(packets.PUBCOMP, 1)),
            (2, answer(packets.PUBACK, 1)),
            (2, answer(packets.PUBCOMP, 1)),
            (1, answer(packets.PUBACK, 2)),
            (1, b"\x40\x03\x00\x01\x97"),
            (1, b"\xd0\x00"),
        ],
    )
    def test_a_wrong_answer_is_a_breach(self, qos: int, data: bytes) -> None:
        peer = publisher()
        peer.publish(TOPIC, qos=qos)
        peer.receive(data)
        assert len(peer.breaches) == 1

    def test_a_second_puback_is_a_breach(self) -> None:
        peer = publisher()
        peer.publish(TOPIC, qos=1)
        peer.receive(answer(packets.PUBACK, 1) * 2)
        assert peer.breaches == ["p: an acknowledgement (type 4) of 1, not under way"]

    @pytest.mark.parametrize(("is_resent", "breach_count"), [(True, 0), (False, 1)])
    def test_a_release_may_find_its_exchange_ended_only_after_a_cut(
        self, is_resent: bool, breach_count: int
    ) -> None:
        peer = publisher()
        peer.publish(TOPIC, qos=2)
        peer.receive(answer(packets.PUBREC, 1))
        if is_resent:
            resume(peer)
        peer.receive(b"\x70\x03\x00\x01\x92")
        assert len(peer.breaches) == breach_count
        assert peer.under_way == {}

    def test_packet_identifiers_wrap_around_what_is_under_way(self) -> None:
        peer = publisher()
        peer.publish(TOPIC, qos=2)
        for packet_id in range(2, PACKET_ID_MAX + 1):
            peer.publish(TOPIC, qos=1)
            peer.receive(answer(packets.PUBACK, packet_id))
        (message,) = sent(peer.publish(TOPIC, qos=1))
        assert isinstance(message, Publication)
        assert message.packet_id == 2
        assert peer.breaches == []


class TestSession:
    @pytest.mark.parametrize("make", [publisher, subscriber])
    def test_a_session_that_is_gone_is_a_breach(
        self, make: Callable[[], Publisher | Subscriber]
    ) -> None:
        peer = make()
        peer.connect()
        peer.receive(NEW)
        assert peer.breaches == [f"{peer.client_id}: the session was forgotten"]

    def test_a_refused_connect_is_a_breach(self) -> None:
        peer = subscriber()
        peer.connect()
        peer.receive(b"\x20\x02\x00\x05")
        assert not peer.is_connected
        assert peer.breaches == ["s: refused at CONNECT with 0x05"]

    @pytest.mark.parametrize(("reason", "breach_count"), [(0x8B, 0), (0x82, 1)])
    def test_the_broker_may_say_goodbye_only_when_it_shuts_down(
        self, reason: int, breach_count: int
    ) -> None:
        peer = subscriber()
        peer.receive(bytes([0xE0, 1, reason]))
        assert len(peer.breaches) == breach_count

    def test_half_a_packet_of_the_old_connection_is_forgotten(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 1)[:5])
        resume(peer)
        assert peer.receive(delivery(1, 1)) == answer(packets.PUBACK, 1)
        assert peer.breaches == []


class TestSubscriber:
    def test_it_takes_and_acknowledges(self) -> None:
        peer = subscriber()
        assert peer.receive(delivery(1, 1)) == answer(packets.PUBACK, 1)
        assert peer.receive(delivery(2, 2, qos=2)) == answer(packets.PUBREC, 2)
        assert peer.receive(answer(packets.PUBREL, 2)) == answer(packets.PUBCOMP, 2)
        assert peer.receipts.count == 2
        assert peer.breaches == []

    def test_less_than_the_qos_asked_for_is_a_breach(self) -> None:
        peer = Subscriber("s", [("#", 2)], protocol=4, chance=random.Random(1))
        peer.connect()
        peer.receive(NEW + b"\x90\x03\x00\x01\x01")
        assert peer.breaches == ["s: granted [1]"]

    @pytest.mark.parametrize("qos", [1, 2])
    def test_a_redelivery_after_a_cut_keeps_its_packet_identifier(self, qos: int) -> None:
        peer = subscriber(hold=1.0)
        peer.receive(delivery(1, 5, qos=qos))
        assert resume(peer) == b""
        peer.receive(delivery(1, 5, qos=qos, dup=True))
        assert peer.breaches == []
        assert peer.receipts.count == (2 if qos == 1 else 1)

    def test_another_packet_identifier_is_a_breach(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 5))
        resume(peer)
        peer.receive(delivery(1, 6, dup=True))
        assert peer.breaches == ["s: t b'p 1 0 ': came as 5, again as 6"]

    def test_a_redelivery_without_dup_is_a_breach(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 5))
        resume(peer)
        peer.receive(delivery(1, 5))
        assert peer.breaches == ["s: t b'p 1 0 ': came again without DUP"]

    def test_dup_on_what_never_arrived_is_not_a_breach(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 5, dup=True))
        assert peer.breaches == []

    def test_a_repeat_over_a_live_connection_is_a_breach(self) -> None:
        peer = subscriber(hold=1.0)
        peer.receive(delivery(1, 5) + delivery(1, 5, dup=True))
        assert peer.breaches == ["s: t b'p 1 0 ': sent again on a live connection"]

    @pytest.mark.parametrize("qos", [1, 2])
    def test_a_packet_identifier_in_flight_for_another_message_is_a_breach(self, qos: int) -> None:
        peer = subscriber(hold=1.0)
        peer.receive(delivery(1, 5, qos=qos) + delivery(2, 5, qos=1))
        assert peer.breaches == ["s: t b'p 2 0 ': its packet identifier 5 is in flight"]

    def test_a_packet_identifier_is_free_after_its_puback(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 5) + delivery(2, 5))
        assert peer.breaches == []

    def test_a_new_qos_2_message_before_the_release_is_a_breach(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 5, qos=2))
        resume(peer)
        peer.receive(delivery(2, 5, qos=2))
        assert peer.breaches == ["s: 5 carries a new message before its release"]

    def test_a_qos_2_message_that_comes_after_its_release_is_repeated(self) -> None:
        ledger = Ledger()
        ledger.send("p", TOPIC, qos=2, at_us=1)
        peer = subscriber()
        peer.receive(delivery(1, 5, qos=2) + answer(packets.PUBREL, 5))
        resume(peer)
        peer.receive(delivery(1, 5, qos=2, dup=True))
        assert audit(ledger, peer.receipts).repeated == 1

    def test_a_release_that_comes_again_is_answered_again(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 5, qos=2) + answer(packets.PUBREL, 5))
        resume(peer)
        assert peer.receive(answer(packets.PUBREL, 5)) == answer(packets.PUBCOMP, 5)
        assert peer.breaches == []

    def test_what_it_holds_back_goes_out_later_or_dies_with_the_connection(self) -> None:
        peer = subscriber(hold=1.0)
        assert peer.receive(delivery(1, 1) + delivery(2, 2)) == b""
        released = sent(peer.release_held())
        assert sorted(packet.body for packet in released if isinstance(packet, Packet)) == [
            b"\x00\x01",
            b"\x00\x02",
        ]
        peer.receive(delivery(3, 3))
        resume(peer)
        assert peer.release_held() == b""

    def test_it_holds_back_a_bounded_number(self) -> None:
        peer = subscriber(hold=1.0)
        out = b"".join(
            peer.receive(delivery(number, number)) for number in range(1, peer.HELD_MAX + 1)
        )
        assert len(sent(out)) == peer.HELD_MAX

    def test_forgetting_starts_a_new_count(self) -> None:
        peer = subscriber()
        peer.receive(delivery(1, 1))
        peer.forget_messages()
        assert peer.receipts.count == 0
        peer.receive(delivery(1, 2))
        assert peer.breaches == []

    def test_its_window_goes_out_in_5_0(self) -> None:
        peer = Subscriber("s", [("#", 1)], protocol=5, chance=random.Random(1))
        peer.window = 7
        assert b"\x21\x00\x07" in peer.connect()

    def test_a_packet_that_no_subscriber_expects_is_a_breach(self) -> None:
        peer = subscriber()
        peer.receive(b"\xd0\x00")
        assert len(peer.breaches) == 1

    def test_a_qos_0_message_is_taken_without_an_answer(self) -> None:
        peer = subscriber()
        assert peer.receive(b"\x30\x09\x00\x01tp 1 0 ") == b""
        assert peer.receipts.count == 1
