"""An HTTP service as the target: batches as JSON, one at a time, in order.

A batch has the same beginning whenever it is tried again, but perhaps another end: a service that
must not do a thing twice goes by the offset of each message. Answers of 2xx mean taken; what has
nothing to do with the messages (no answer, 408, 425, 429, 5xx, 401, 403, 404) is tried again; any
other 4xx refuses the batch, which is halved until the message is found that it is about.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final, final

import httpx
import msgspec

from perdure.config.schema import ForwarderConfig
from perdure.config.schema.forwarders import WebhookForwarderConfig
from perdure.errors import ConfigError, TargetUnavailable
from perdure.forwarders.mapping import TopicMap, envelope
from perdure.forwarders.output import Context, Output, Refusal
from perdure.model import Cursor, Message
from perdure.net.http_body import PLAIN, read_body
from perdure.net.http_settings import check_http_url, read_headers
from perdure.net.tls import client_context

_PASSING: Final = frozenset({401, 403, 404, 407, 408, 425, 429})
"""What is the service's or the operator's fault, not the messages'."""
ANSWER_BYTES_MAX: Final = 64 * 1024
"""Of an answer's body, which is not read beyond it."""


@final
class WebhookOutput(Output):
    """Posts to a service.

    Args:
        settings, context: of the forwarder.

    Raises:
        ConfigError: the settings cannot be used.
    """

    def __init__(self, settings: WebhookForwarderConfig, context: Context) -> None:
        setting = context.setting
        check_http_url(settings.url, f"{setting}.url")
        self._settings = settings
        self._context = context
        self._topic = TopicMap(settings.strip, settings.topic, setting=f"{setting}.topic")
        self._headers = read_headers(settings.header_file, f"{setting}.header_file")
        try:
            self._trusted = client_context(cafile=settings.ca_file)
        except ConfigError as error:
            path = f"{setting}.ca_file"
            raise ConfigError(error.message, path=path, hint=error.hint) from None
        self._client: httpx.AsyncClient | None = None

    async def open(self, cursor: Cursor) -> int:
        """Make a client; the service is asked with the first batch."""
        self._client = httpx.AsyncClient(
            headers=PLAIN,
            verify=self._trusted,
            timeout=self._settings.timeout_s,
            limits=httpx.Limits(max_connections=1, max_keepalive_connections=1),
            # What is told is for the service that the operator has named.
            follow_redirects=False,
            trust_env=False,
        )
        return 0

    async def write(self, messages: Sequence[Message]) -> list[Refusal] | None:
        """Post a batch."""
        reason = await self._post(messages)
        if not reason:
            return []
        return [Refusal(messages[0], reason)] if len(messages) == 1 else None

    async def close(self) -> None:
        """Close the connection."""
        if self._client is not None:
            await self._client.aclose()
            self._client = None

    async def _post(self, messages: Sequence[Message]) -> str:
        """Post messages; why they are refused, empty = they are not.

        Raises:
            TargetUnavailable: the service does not say.
        """
        assert self._client is not None
        told = [{**envelope(each), "topic": self._topic(each.topic)} for each in messages]
        body = msgspec.json.encode({"forwarder": self._context.name, "messages": told})
        name, first, last = self._context.name, messages[0].offset, messages[-1].offset
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{self._context.origin}-{name}-{first}-{last}",
            **self._headers,
        }
        if self._settings.secret:
            sent_s = self._context.core.clock.wall_us() // 1_000_000
            headers["Perdure-Signature"] = signature(self._settings.secret, sent_s, body)
        try:
            async with self._client.stream(
                "POST", self._settings.url, content=body, headers=headers
            ) as answer:
                status = answer.status_code
                # To the end, so that an answer that breaks off is none; of a long one the status
                # is enough.
                with contextlib.suppress(ValueError):
                    await read_body(answer, bytes_max=ANSWER_BYTES_MAX)
        except httpx.HTTPError as error:
            raise TargetUnavailable(f"no answer: {error!r}") from None
        if 200 <= status < 300:
            return ""
        if 400 <= status < 500 and status not in _PASSING:
            return f"HTTP {status}"
        raise TargetUnavailable(f"the service answers {status}")


def signature(secret: str, sent_s: int, body: bytes) -> str:
    """``t=<seconds>,v1=<hex>``: HMAC-SHA256 over the time, a dot and the body.

    Args:
        secret: shared with the service.
        sent_s: time of sending, s since 1970, so that an old request is not accepted again.
        body: as it is sent.
    """
    signed = hmac.new(secret.encode(), b"%d." % sent_s + body, hashlib.sha256).hexdigest()
    return f"t={sent_s},v1={signed}"


def open_output(settings: ForwarderConfig, context: Context) -> WebhookOutput:
    """Make the output."""
    assert isinstance(settings, WebhookForwarderConfig)
    return WebhookOutput(settings, context)
