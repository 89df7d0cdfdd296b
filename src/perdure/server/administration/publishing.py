"""Publishes messages for administrators.

An answer means what PUBACK means to a client: what is recorded is on disk. With an idempotency key,
a request that comes again is answered as the first one was, and publishes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final, final

import msgspec

from perdure.admin.operation import Request
from perdure.admin.problems import Refused
from perdure.admin.records.messages import NewMessage, Publish, Published, PublishedList
from perdure.broker.commit.waiters import LEVEL_FSYNC, Signal
from perdure.broker.publish.path import REFUSALS
from perdure.broker.services import Services
from perdure.config.units import format_time
from perdure.errors import UsageError
from perdure.limits import REMAINING_LENGTH_MAX
from perdure.model import Message
from perdure.mqtt.encode import forward_properties, properties_from_forward
from perdure.mqtt.packets import Properties
from perdure.mqtt.reason_codes import QUOTA_EXCEEDED
from perdure.server.administration.service import Call, Handler

KEYS_MAX: Final = 10_000
"""Idempotency keys that are remembered."""

KEYS_US: Final = 600_000_000
"""How long one is."""


@final
class _Once:
    """A request with a key: its content, and its answer once there is one."""

    def __init__(self, digest: bytes, at_us: int) -> None:
        self.digest = digest
        self.at_us = at_us
        self.answer: asyncio.Future[PublishedList] = asyncio.get_running_loop().create_future()


@final
class PublishOperations:
    """Publishes.

    Args:
        services: the parts of the broker.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._keys: OrderedDict[tuple[str, str], _Once] = OrderedDict()

    def handlers(self) -> Mapping[type[Request[Any]], Handler]:
        """By request."""
        return {Publish: self.publish}

    async def publish(self, request: Publish, call: Call) -> PublishedList:
        """Publish, once for each key."""
        if not request.idempotency_key:
            return await self._publish(request, call)
        self._forget()
        key = call.principal.name, request.idempotency_key
        digest = hashlib.blake2b(msgspec.msgpack.encode(request.messages)).digest()
        known = self._keys.get(key)
        if known is not None:
            if known.digest != digest:
                raise Refused("key_reused", "the Idempotency-Key was used for other messages")
            return await asyncio.shield(known.answer)
        once = self._keys[key] = _Once(digest, self._services.clock.monotonic_us())
        try:
            answer = await self._publish(request, call)
        except BaseException as error:
            # Nothing is known to be on disk: the same request may try again.
            if self._keys.get(key) is once:  # so many others may have come that it was forgotten
                del self._keys[key]
            if isinstance(error, Exception):
                once.answer.set_exception(error)
                once.answer.exception()
            else:
                once.answer.cancel()
            raise
        once.answer.set_result(answer)
        return answer

    def _forget(self) -> None:
        oldest_us = self._services.clock.monotonic_us() - KEYS_US
        while self._keys:
            first = next(iter(self._keys))
            if len(self._keys) < KEYS_MAX and self._keys[first].at_us > oldest_us:
                return
            del self._keys[first]

    async def _publish(self, request: Publish, call: Call) -> PublishedList:
        services = self._services
        if services.pipeline.is_overloaded():
            raise Refused("busy", "the broker has more to write than it can keep up with")
        pipeline = services.pipeline
        pipeline.now_us = services.clock.now_us()
        messages = [self._checked(each) for each in request.messages]
        self._check_all_room(messages)
        for message in messages:
            services.publish_path.take(message)
            self._count(message)
        signal = Signal(services.scheduler.gate())
        services.committer.wait(signal, LEVEL_FSYNC, len(messages))
        pipeline.schedule()
        await signal.gate
        if signal.error is not None:
            raise signal.error
        call.after = {"messages": len(messages), "topics": sorted({m.topic for m in messages})[:20]}
        return PublishedList([_published(message) for message in messages])

    def _checked(self, new: NewMessage) -> Message:
        """The message, if it may be published.

        Raises:
            Refused, MqttError: it may not.
        """
        path = self._services.publish_path
        path.check_topic(new.topic)
        if new.topic.startswith("$"):
            raise Refused("forbidden", f"{new.topic!r:.200}: topics with $ are the broker's own")
        if new.qos > path.qos_max:
            raise Refused("bad_request", f"this broker takes messages up to QoS {path.qos_max}")
        if new.retain and not path.retain_available:
            raise Refused("bad_request", "this broker retains no messages")
        payload = new.payload
        if new.payload_text is not None:
            if payload is not None:
                raise Refused("bad_request", "a message has payload or payload_text, not both")
            payload = new.payload_text.encode()
        if len(payload or b"") + len(new.topic.encode()) > REMAINING_LENGTH_MAX - 65_536:
            raise Refused("too_large", f"{new.topic!r:.200}: no packet could hold the message")
        pipeline = self._services.pipeline
        expiry_s = new.message_expiry_interval
        return Message(
            new.topic,
            payload or b"",
            new.qos,
            new.retain,
            "",
            _forward(new),
            pipeline.now_us + expiry_s * 1_000_000 if expiry_s is not None else 0,
            pipeline.published_us(),
        )

    def _check_all_room(self, messages: list[Message]) -> None:
        """Refuse all of a request if there is no room for one."""
        room = self._services.publish_path.retained_room
        mark = room.mark()
        try:
            for message in messages:
                self._check_room(message)
        except Refused:
            room.back_to(mark)
            raise

    def _check_room(self, message: Message) -> None:
        path = self._services.publish_path
        code = path.refusal() if message.qos else 0
        if code:
            full = code == QUOTA_EXCEEDED
            raise Refused("storage_full" if full else "storage_unavailable", REFUSALS[code])
        if message.retain:
            limit = path.retained_room.refuses(message.topic, message.payload, message.properties)
            if limit:
                raise Refused("storage_full", f"no room to retain it: see {limit}")

    def _count(self, message: Message) -> None:
        name = f"messages_received_{message.qos}"
        metrics = self._services.metrics
        setattr(metrics, name, getattr(metrics, name) + 1)


def _forward(new: NewMessage) -> bytes:
    """The properties of a message in wire form.

    Raises:
        Refused, MqttError: no client could have sent them.
    """
    properties = Properties(
        payload_format_indicator=new.payload_format_indicator,
        content_type=new.content_type,
        response_topic=new.response_topic,
        correlation_data=new.correlation_data,
        user_properties=tuple(new.user_properties),
    )
    try:
        wire = forward_properties(properties)
    except UsageError as error:
        raise Refused("bad_request", f"a property of the message: {error.message}") from None
    # Read as a client's are: subscribers may end their connection over what is not allowed there.
    properties_from_forward(wire)
    return wire


def _published(message: Message) -> Published:
    return Published(
        topic=message.topic,
        offset=message.offset or None,
        published_at=format_time(message.published_at_us),
        published_at_us=message.published_at_us,
    )
