"""Acknowledgements that wait for a commit, in the order of the packets that they answer.

Waiters of ``broker.commit.committer``: each knows what to say when the batch is durable, and when
it is not. What goes wrong in saying so is ``broke``, and ends the connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from perdure.broker.publish.path import refusal_code
from perdure.errors import StorageError
from perdure.model import Message
from perdure.mqtt.packets import PUBACK
from perdure.mqtt.primitives import UINT16_BYTES
from perdure.mqtt.reason_codes import (
    NO_MATCHING_SUBSCRIBERS,
    QUOTA_EXCEEDED,
    UNSPECIFIED_ERROR,
)

if TYPE_CHECKING:
    from perdure.broker.delivery.sender import Sender


def puback_unmatched(
    sender: Sender,
    packet_ids: list[bytes],
    offsets: list[int],
    unmatched: set[int],
    *,
    tells: bool,
) -> None:
    """PUBACK for messages some of which nobody wanted.

    Args:
        sender: to whom.
        packet_ids: identifiers in wire form.
        offsets: of the messages.
        unmatched: those that nobody wanted; what is answered here is taken out.
        tells: the client may be told so.
    """
    for raw, offset in zip(packet_ids, offsets, strict=True):
        reason = NO_MATCHING_SUBSCRIBERS if tells and offset in unmatched else 0
        unmatched.discard(offset)
        sender.ack(PUBACK, int.from_bytes(raw, "big"), reason)


class AckSender:
    """Who sends acknowledgements once they may go: the QoS flow of a connection.

    A base class and no protocol: it is called for each commit of each publisher.
    """

    __slots__ = ()

    @property
    def has_reason_codes(self) -> bool:
        """Whether the client can be told why (5.0)."""
        raise NotImplementedError

    def acknowledge(
        self, kind: int, packet_ids: list[bytes], messages: list[Message] | None, started_us: int
    ) -> None:
        """The messages are committed: PUBACK or PUBREC for each.

        Args:
            kind: PUBACK or PUBREC.
            packet_ids: identifiers in wire form.
            messages: the same, if the client can be told who has heard them.
            started_us: monotonic time at which they came.
        """
        raise NotImplementedError

    def acknowledge_state(self, kind: int, packet_ids: list[bytes], reason: int) -> None:
        """The state behind PUBRECs, PUBRELs or PUBCOMPs is durable: send them.

        Args:
            kind: of all.
            packet_ids: identifiers in wire form.
            reason: reason code; only of a single one.
        """
        raise NotImplementedError

    def refuse(self, kind: int, packet_id: int, reason_code: int) -> None:
        """PUBACK or PUBREC with an error: the message was not taken (5.0)."""
        raise NotImplementedError

    def count_full(self, count: int = 1) -> None:
        """Messages were turned away because the disk or its budget is full."""
        raise NotImplementedError

    def storage_lost(self, reason_code: int) -> None:
        """A commit that the client waits for has failed."""
        raise NotImplementedError

    def broke(self, error: Exception) -> None:
        """Answering failed as nobody expected: the connection ends."""
        raise NotImplementedError


@final
class PublishAcks:
    """PUBACKs or PUBRECs that wait for the commit of a run; arguments as ``acknowledge``."""

    __slots__ = ("_flow", "_kind", "_messages", "_packet_ids", "_started_us")

    def __init__(
        self,
        flow: AckSender,
        kind: int,
        packet_ids: list[bytes],
        messages: list[Message] | None,
        started_us: int,
    ) -> None:
        self._flow: AckSender = flow
        self._kind: int = kind
        self._packet_ids: list[bytes] = packet_ids
        self._messages: list[Message] | None = messages
        self._started_us: int = started_us

    def committed(self) -> None:
        """[MQTT-4.3.2-4] [MQTT-4.3.3-8] the messages are ours now: say so."""
        self._flow.acknowledge(self._kind, self._packet_ids, self._messages, self._started_us)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The messages were not taken, or nobody knows."""
        flow = self._flow
        code = refusal_code(error)
        if code == QUOTA_EXCEEDED and not in_doubt:
            flow.count_full(len(self._packet_ids))
        if in_doubt or not flow.has_reason_codes:
            # In doubt the client must keep the messages and send them again under the same
            # identifiers, so nothing that ends an exchange may be sent.
            flow.storage_lost(code)
            return
        for raw in self._packet_ids:
            flow.refuse(self._kind, int.from_bytes(raw, "big"), code)

    def broke(self, error: Exception) -> None:
        """Its connection ends."""
        self._flow.broke(error)


@final
class StateAcks:
    """Acknowledgements that wait for session state: PUBREL after PUBREC, PUBCOMP after PUBREL,
    PUBREC again for a duplicate; arguments as ``acknowledge_state``."""

    __slots__ = ("_flow", "_kind", "_packet_ids", "_reason")

    def __init__(self, flow: AckSender, kind: int, packet_ids: list[bytes], reason: int) -> None:
        self._flow: AckSender = flow
        self._kind: int = kind
        self._packet_ids: list[bytes] = packet_ids
        self._reason: int = reason

    def committed(self) -> None:
        """The state is durable."""
        self._flow.acknowledge_state(self._kind, self._packet_ids, self._reason)

    def failed(self, error: StorageError, *, in_doubt: bool) -> None:
        """The state is not durable: the client must ask again after a reconnect."""
        self._flow.storage_lost(UNSPECIFIED_ERROR)

    def broke(self, error: Exception) -> None:
        """Its connection ends."""
        self._flow.broke(error)


@final
class RefusalAck:
    """The answer to a PUBLISH that the client may not make, in its place among the others."""

    __slots__ = ("_flow", "_kind", "_packet_id", "_reason", "_started_us")

    def __init__(
        self, flow: AckSender, kind: int, packet_id: int, reason: int, started_us: int
    ) -> None:
        self._flow = flow
        self._kind = kind
        self._packet_id = packet_id
        self._reason = reason
        self._started_us = started_us

    def committed(self) -> None:
        """Everything before it is answered."""
        if self._reason:
            self._flow.refuse(self._kind, self._packet_id, self._reason)
        else:
            packet_ids = [UINT16_BYTES[self._packet_id]]
            self._flow.acknowledge(self._kind, packet_ids, None, self._started_us)

    def failed(self, error: Exception, *, in_doubt: bool) -> None:
        """Earlier messages of the same commit failed. A refusal holds all the same; an
        acknowledgement of 3.1.1 may stand for state that was not written."""
        if self._reason:
            self._flow.refuse(self._kind, self._packet_id, self._reason)
        else:
            self._flow.storage_lost(UNSPECIFIED_ERROR)

    def broke(self, error: Exception) -> None:
        """Its connection ends."""
        self._flow.broke(error)
