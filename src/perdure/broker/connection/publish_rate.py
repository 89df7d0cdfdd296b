"""How fast one client may publish."""

from __future__ import annotations

from typing import final

from perdure.broker.runtime.token_bucket import TokenBucket


@final
class PublishRate:
    """Rates of messages and of payload bytes that a client is held to; None = any.

    Args:
        messages: a token for each message.
        payload: a token for each byte of payload.
    """

    __slots__ = ("_messages", "_payload")

    def __init__(self, messages: TokenBucket | None, payload: TokenBucket | None) -> None:
        self._messages: TokenBucket | None = messages
        self._payload: TokenBucket | None = payload

    def take(self, payload_bytes: int, now_us: int) -> int:
        """Count a message; how long nothing more should be read, in microseconds."""
        wait_us = 0
        if self._messages is not None:
            wait_us = self._messages.take(1, now_us)
        if self._payload is not None:
            wait_us = max(wait_us, self._payload.take(payload_bytes, now_us))
        return wait_us
