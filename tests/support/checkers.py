"""What a run is held against, once the faults are over and everybody has taken what is owed.

``delivery`` knows loss, repeats and order; ``peers`` know packet identifiers and DUP. Here they
are asked together, and the broker is looked into: nothing may be left over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.support.delivery import Ledger, Receipts, Stamp, audit
from tests.support.peers import Publisher, Subscriber
from tests.support.sim_broker import SimBroker

EXAMPLES_MAX = 5


def broken_promises(
    ledger: Ledger,
    publishers: Sequence[Publisher],
    subscribers: Sequence[Subscriber],
    groups: Sequence[Receipts] = (),
) -> list[str]:
    """What publishers and subscribers have to complain of, in words.

    Args:
        ledger: what was published.
        publishers: all of them.
        subscribers: members of groups too; what a group received is not theirs alone.
        groups: what each group received.
    """
    found: list[str] = []
    for peer in [*publishers, *subscribers]:
        found += peer.breaches[:EXAMPLES_MAX]
    own = [s.receipts for s in subscribers if not any(s.receipts is group for group in groups)]
    verdicts = [audit(ledger, receipts, strict_order=True) for receipts in own]
    verdicts += [audit(ledger, receipts, any_order=True) for receipts in groups]
    for verdict in verdicts:
        found += verdict.examples
        if verdict.breaches > len(verdict.examples):
            found.append(f"{verdict.name}: {verdict.breaches} breaches in all")
    return found


def unsettled(sim: SimBroker, client_ids: Sequence[str]) -> list[str]:
    """What connected sessions still hold although everything was acknowledged."""
    broker = sim.broker
    if broker is None:
        return ["there is no broker"]
    found: list[str] = []
    for client_id in client_ids:
        session = broker.services.registry.live.get(client_id)
        if session is None:
            found.append(f"{client_id}: not connected")
            continue
        outbound = session.outbound
        left = {
            "in flight": outbound.inflight.count,
            "pending": len(outbound.pending),
            "lagging": int(session.lagging),
            "backfilling": session.backfilling,
            "in the dispatch queue": session.inbox_queued,
            "not idle": int(not outbound.is_idle()),
        }
        found += [f"{client_id}: {what}: {count}" for what, count in left.items() if count]
    for key, group in broker.services.shared_subscriptions.groups.items():
        if group.lagging or group.returned.entries:
            found.append(
                f"group {key}: lagging {group.lagging}, {len(group.returned.entries)} returned"
            )
    return found


def wrong_retained(ledger: Ledger, retained: Mapping[str, bytes]) -> list[str]:
    """Topics whose retained message is older than the last that was acknowledged.

    Each topic has one publisher.
    """
    found: list[str] = []
    for (publisher, topic), flow in ledger.flows.items():
        if not topic.startswith("state/"):
            continue
        acknowledged = [index + 1 for index, at in enumerate(flow.acknowledged_at_us) if at]
        if not acknowledged:
            continue
        stamp = Stamp.decode(retained.get(topic, b""))
        if stamp is None or stamp.publisher != publisher or stamp.number < acknowledged[-1]:
            found.append(f"{topic}: {stamp} is retained, {acknowledged[-1]} was acknowledged")
    return found
