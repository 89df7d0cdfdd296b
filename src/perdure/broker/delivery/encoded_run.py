"""The bytes of a run of messages that many subscribers are sent."""

from __future__ import annotations

from typing import final

from perdure.model import Message


@final
class EncodedRun:
    """The run of messages that was sent last, by whom ever: subscribers of one topic that have
    been sent as many messages are sent the same bytes."""

    __slots__ = ("_identifiers", "_messages", "_packet_id", "_version", "data", "payload_bytes")

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._version: int = 0
        self._packet_id: int = 0
        self._identifiers: tuple[int, ...] = ()
        self.data: bytes = b""
        """Empty = only one subscriber was sent it."""
        self.payload_bytes: int = 0

    def is_of(
        self, messages: list[Message], version: int, packet_id: int, identifiers: tuple[int, ...]
    ) -> bool:
        """Whether it is that of these arguments."""
        return (
            messages is self._messages
            and packet_id == self._packet_id
            and version == self._version
            and identifiers == self._identifiers
        )

    def keep(
        self, messages: list[Message], version: int, packet_id: int, identifiers: tuple[int, ...]
    ) -> None:
        """The next one may be the same."""
        self._messages = messages
        self._version = version
        self._packet_id = packet_id
        self._identifiers = identifiers
        self.data = b""

    def forget(self) -> None:
        """Keep nothing."""
        self._messages = []
        self.data = b""
