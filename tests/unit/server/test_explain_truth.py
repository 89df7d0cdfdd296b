"""What ``explain`` says is what a client gets: random situations on a whole broker."""

from __future__ import annotations

import pytest

from perdure.admin.records.explain import What
from perdure.model import Message
from tests.unit.server.situation import (
    FILTERS,
    HELD_UP,
    SITES,
    TOPICS,
    Situation,
    make_situation,
)


@pytest.mark.parametrize("seed", range(150))
def test_the_verdict_on_a_message_that_is_yet_to_be_published(seed: int) -> None:
    run = make_situation(seed)
    chance = run.chance
    online = not run.reader.is_lost
    banned = run.sim.live.services.ban_enforcer.bans.in_force(run.sim.clock.now_us())
    publisher = "r" if online and chance.random() < 0.3 else "p"
    if banned and publisher == "p" and run.publishers["p"].is_lost:
        return  # it can publish nothing
    topic, qos = chance.choice(TOPICS), chance.choice((0, 1, 2))
    size = chance.choice((8, 70, 500))
    verdict = run.explain(topic, What(publisher=publisher, qos=qos, size=size))
    payload = run.publish(publisher, topic, qos, size, forward=run.last_properties(topic))
    if verdict == "content_decides":
        return
    at_once = run.got(payload)
    if verdict == "shared":
        run.assert_shared(payload)
        return
    assert at_once == (verdict == "delivered"), run.story
    if at_once:
        return
    came = run.acknowledges(verdict) and run.got(payload)
    if verdict == "too_large":
        return  # it may take more by then, if it has not been given up
    assert came == (verdict in HELD_UP), run.story


@pytest.mark.parametrize("seed", range(100))
def test_the_verdict_on_the_last_message_that_was_published(seed: int) -> None:
    """Asked about a topic alone, it speaks of the last recorded message there, whose fate is
    known."""
    run = make_situation(1000 + seed)
    chance = run.chance
    if run.publishers["p"].is_lost:
        return
    topic, qos = chance.choice(TOPICS), chance.choice((1, 2))
    publisher = "r" if not run.reader.is_lost and chance.random() < 0.3 else "p"
    expiry_s = chance.choice((-1, -1, 5))
    forward = chance.choice(SITES)
    payload = run.publish(publisher, topic, qos, chance.choice((8, 70)), expiry_s, forward=forward)
    if chance.random() < 0.3:
        run.sim.run_for(chance.choice((6_000_000, 30_000_000)))
    if not run.sim.live.services.publish_path.is_recorded(Message(topic, b"", qos)):
        return
    if not run.sim.live.services.authorizer.publish(
        run.sim.live.services.registry.live[publisher].identity, topic
    ):
        return
    verdict = run.explain(topic)
    at_once = run.got(payload)
    if verdict == "delivered":
        assert at_once, run.story
        return
    if verdict == "shared":
        run.assert_shared(payload)
        return
    if at_once:
        # What is in the way now came after it.
        assert verdict in HELD_UP | {"shared_elsewhere"}, run.story
        return
    came = run.acknowledges(verdict) and run.got(payload)
    if verdict != "too_large":
        assert came == (verdict in HELD_UP), run.story


@pytest.mark.parametrize("seed", range(150))
def test_groups_whose_members_come_and_go(seed: int) -> None:
    """The reader's group may have another member, which may have no right or no room."""
    run = Situation(2000 + seed)
    chance = run.chance
    for client in run.publishers.values():
        client.connect()
    run.other.connect(packet_size_max=chance.choice((None, 60)))
    for _ in range(chance.choice((1, 1, 2))):
        name = f"$share/g/{chance.choice(FILTERS)}"
        run.reader.subscribe(name, qos=chance.choice((0, 1, 2)))
        if chance.random() < 0.7:
            run.other.subscribe(name, qos=chance.choice((0, 1, 2)))
        run.story.append(name)
    if chance.random() < 0.4:
        run.reader.subscribe(chance.choice(FILTERS), qos=chance.choice((0, 0, 1)))
    is_away = chance.random() < 0.7
    if is_away:
        run.go_away()
    topic, qos, size = chance.choice(TOPICS), chance.choice((0, 1, 1)), chance.choice((8, 70))
    verdict = run.explain(topic, What(publisher="p", qos=qos, size=size))
    payload = run.publish("p", topic, qos, size)
    at_once = run.got(payload)
    if verdict == "shared":
        run.assert_shared(payload)
        return
    assert at_once == (verdict == "delivered"), run.story
    if is_away:
        came = run.come_back_acknowledging() and run.got(payload)
        assert came == (verdict == "offline"), run.story
        services = run.sim.live.services
        may = services.authorizer.publish(services.registry.live["p"].identity, topic)
        if may and verdict in {"shared_elsewhere", "passed_over"}:
            assert run.got(payload, run.other) == (verdict == "shared_elsewhere"), run.story
