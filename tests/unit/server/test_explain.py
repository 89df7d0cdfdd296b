"""Why a message is, or is not, delivered: each reason, once."""

from __future__ import annotations

import msgspec
import pytest

from perdure.admin.records.explain import Explanation
from perdure.admin.records.sessions import LiveView
from perdure.errors import MqttError
from perdure.model import BackfillProgress, Cursor, InboxEntry, Message, SessionRecord, Subscription
from perdure.server.explain import explain
from perdure.storage.memory import MemoryDatabase
from tests.support.staged import Staged, take_offset

NOW = 1_700_000_000_000_000
FLOWING = LiveView(inflight=1, inflight_max=10, pending=2, catching_up=False, paused=False)


class Scene:
    """A database with one session, ``a``."""

    def __init__(self, *subs: Subscription, connected: bool = True, expires_at_us: int = 0) -> None:
        self.database = MemoryDatabase()
        record = SessionRecord(
            "a",
            epoch=1,
            created_at_us=NOW,
            expiry_s=60,
            connected=connected,
            changed_at_us=NOW,
            expires_at_us=expires_at_us,
        )
        batch = Staged(self.database)
        batch.put_session(record)
        for sub in subs:
            batch.put_subscription("a", sub, epoch=1)
        batch.write()

    def publish(self, topic: str, *, publisher: str = "p", expires_at_us: int = 0) -> int:
        batch = Staged(self.database)
        message = Message(topic, b"x", 1, publisher=publisher, expires_at_us=expires_at_us)
        message.published_at_us = NOW
        offset = batch.append(message, NOW)
        batch.write()
        return offset

    def settle(self, offset: int, *, sent: int = 0) -> None:
        batch = Staged(self.database)
        batch.put_cursor("a", Cursor(offset=offset, sent=sent), epoch=1)
        batch.write()

    async def explain(self, topic: str = "t", live: LiveView | None = FLOWING) -> Explanation:
        found = await explain(self.database, "a", topic, NOW, running=True, live=live)
        assert found is not None
        assert found.reason
        return found

    async def codes(self, topic: str = "t", live: LiveView | None = FLOWING) -> list[str]:
        return [finding.code for finding in (await self.explain(topic, live)).findings]


QOS1 = Subscription("t", qos=1)


async def test_delivered() -> None:
    scene = Scene(QOS1)
    scene.publish("t")
    found = await scene.explain()
    assert found.verdict == "delivered"
    assert [f.code for f in found.findings] == [
        "connected",
        "match",
        "not_checked",
        "owed",
        "flowing",
    ]
    assert all(f.ok for f in found.findings)


async def test_no_session() -> None:
    assert await explain(MemoryDatabase(), "a", "t", NOW, running=True) is None


async def test_not_a_topic() -> None:
    with pytest.raises(MqttError):
        await Scene().explain("a/#")


async def test_offline() -> None:
    found = await Scene(QOS1, connected=False).explain(live=None)
    assert found.findings[0].code == "offline"
    assert "for ever" in found.findings[0].detail
    limited = await Scene(QOS1, connected=False, expires_at_us=NOW + 1).explain(live=None)
    assert "until 2023-" in limited.findings[0].detail


async def test_offline_is_told_after_other_reasons() -> None:
    scene = Scene(QOS1, connected=False)
    scene.publish("t")
    assert (await scene.explain(live=None)).verdict == "offline"
    assert (await scene.explain("other", live=None)).verdict == "no_match"


async def test_expired() -> None:
    assert (await Scene(QOS1, connected=False, expires_at_us=NOW).explain()).verdict == "expired"


async def test_a_stopped_broker_has_no_connected_client() -> None:
    scene = Scene(QOS1)
    found = await explain(scene.database, "a", "t", NOW, running=False)
    assert found is not None
    assert found.findings[0].code == "offline"


async def test_no_subscription() -> None:
    assert (await Scene().explain()).verdict == "no_subscription"
    ended = Scene(msgspec.structs.replace(QOS1, until_offset=5))
    assert (await ended.explain()).verdict == "no_subscription"


@pytest.mark.parametrize(
    ("topic_filter", "topic", "named"),
    [
        ("Plant/Temp", "plant/temp", "Plant/Temp"),
        ("plant/temp/", "plant/temp", "plant/temp/"),
        ("plant/temp/+", "plant/temp", "plant/temp/+"),
        ("#", "$SYS/x", "a leading wildcard does not match"),
    ],
)
async def test_near_misses_are_named(topic_filter: str, topic: str, named: str) -> None:
    found = await Scene(Subscription(topic_filter, qos=1)).explain(topic)
    assert found.verdict == "no_match"
    assert named in found.reason


async def test_far_misses_are_not_named() -> None:
    found = await Scene(Subscription("elsewhere", qos=1)).explain("plant/temp")
    assert found.reason == "none of its 1 subscriptions matches the topic"


async def test_qos_0() -> None:
    sub = Subscription("t", qos=0)
    assert await Scene(sub).codes() == [
        "connected",
        "match",
        "qos0",
        "not_checked",
        "downgraded",
        "flowing",
    ]
    assert (await Scene(sub).explain()).verdict == "delivered"
    assert (await Scene(sub, connected=False).explain(live=None)).verdict == "qos0"


async def test_nothing_recorded() -> None:
    assert "nothing_recorded" in await Scene(QOS1).codes()
    # What is not recorded comes to a connected client as well.
    assert (await Scene(QOS1).explain()).verdict == "delivered"
    offline = await Scene(QOS1, connected=False).explain(live=None)
    assert offline.verdict == "offline"
    assert offline.reason.endswith(
        "kept for ever; no message on this topic is recorded: none was published with QoS 1 or 2"
    )


async def test_everything_settled() -> None:
    scene = Scene(QOS1)
    scene.settle(scene.publish("t"))
    assert "settled" in await scene.codes()
    assert (await scene.explain()).verdict == "delivered"


async def test_before_the_subscription() -> None:
    scene = Scene(msgspec.structs.replace(QOS1, since_offset=2**62))
    scene.publish("t")
    assert (await scene.explain()).verdict == "before_subscription"


async def test_no_local() -> None:
    scene = Scene(msgspec.structs.replace(QOS1, no_local=True))
    scene.publish("t", publisher="a")
    assert (await scene.explain()).verdict == "no_local"
    scene.publish("t", publisher="b")
    assert (await scene.explain()).verdict == "delivered"


async def test_expired_message() -> None:
    scene = Scene(QOS1)
    scene.publish("t", expires_at_us=NOW)
    assert (await scene.explain()).verdict == "message_expired"


async def test_shared_and_fed() -> None:
    scene = Scene(Subscription("t", "g", qos=1))
    assert await scene.codes() == [
        "connected",
        "match",
        "shared",
        "not_checked",
        "none_addressed",
        "flowing",
    ]
    entry = InboxEntry(take_offset(scene.database, NOW), Message("t", b"", 1), qos=1)
    batch = Staged(scene.database)
    batch.put_inbox("a", entry, epoch=1)
    batch.write()
    assert "addressed" in await scene.codes()
    scene.publish("t")
    assert "owed" not in await scene.codes()
    backfilled = Scene(msgspec.structs.replace(QOS1, backfill=BackfillProgress(True, "", 0, 0)))
    assert "backfilling" in await backfilled.codes()


async def test_carried_over_from_a_dropped_generation() -> None:
    scene = Scene(QOS1)
    batch = Staged(scene.database)
    batch.put_inbox("a", InboxEntry(5, Message("t", b"", 1), qos=1), epoch=1)
    batch.write()
    take_offset(scene.database, NOW)
    found = await scene.explain()
    assert (found.verdict, found.findings[3].code) == ("delivered", "addressed")


@pytest.mark.parametrize(
    ("live", "code", "verdict"),
    [
        (LiveView(10, 10, 5, False, False), "window_full", "window_full"),
        (LiveView(3, 10, 5, False, True), "socket_full", "socket_full"),
        (LiveView(3, 10, 5, True, False), "catching_up", "delivered"),
        (FLOWING, "flowing", "delivered"),
        (None, "idle", "delivered"),
    ],
)
async def test_delivery(live: LiveView | None, code: str, verdict: str) -> None:
    scene = Scene(QOS1)
    scene.publish("t")
    found = await scene.explain(live=live)
    assert (found.findings[-1].code, found.verdict) == (code, verdict)


async def test_unacknowledged_messages_of_a_stored_session() -> None:
    scene = Scene(QOS1, connected=False)
    scene.publish("t")
    scene.settle(0, sent=1)
    assert (await scene.codes(live=None))[-1] == "unacknowledged"


@pytest.mark.parametrize("from_log", [True, False])
async def test_a_message_that_holds_up_all_others(from_log: bool) -> None:
    scene = Scene(QOS1)
    if from_log:
        scene.publish("t")
    else:
        entry = InboxEntry(take_offset(scene.database, NOW), Message("t", b"", 1), qos=1)
        batch = Staged(scene.database)
        batch.put_inbox("a", entry, epoch=1)
        batch.write()
    batch = Staged(scene.database)
    settled = tuple(range(2, 65_536))
    batch.put_cursor("a", Cursor(sent=65_535, settled=settled), epoch=1)
    batch.write()
    found = await scene.explain()
    assert found.verdict == "head_unacknowledged"
    assert "packet identifier 1 (serial 1, on t, owed since" in found.reason
    assert "65534 were sent after it, 65534 of them are acknowledged" in found.reason
    assert "let it connect again" in found.reason


async def test_a_message_behind_which_others_are_done() -> None:
    scene = Scene(QOS1)
    batch = Staged(scene.database)
    batch.put_cursor("a", Cursor(sent=3, settled=(2,)), epoch=1)
    batch.write()
    found = await scene.explain()
    assert found.findings[-1].code == "head_unacknowledged"
    assert found.findings[-1].ok
