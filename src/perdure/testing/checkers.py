"""What a run is held against, once the world is kind again and everybody has taken what is owed.

``delivery`` knows loss, repeats and order; ``peers`` know packet identifiers and DUP. Here they
are asked together, and the broker is looked into: nothing may be left over.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.testing.delivery import Ledger, audit
from perdure.testing.peers import Publisher, Subscriber
from perdure.testing.world import World

EXAMPLES_MAX = 5


def broken_promises(
    ledger: Ledger, publishers: Sequence[Publisher], subscribers: Sequence[Subscriber]
) -> list[str]:
    """What publishers and subscribers have to complain of, in words."""
    found: list[str] = []
    for peer in [*publishers, *subscribers]:
        found += peer.breaches[:EXAMPLES_MAX]
    for subscriber in subscribers:
        verdict = audit(ledger, subscriber.receipts, strict_order=True)
        found += verdict.examples
        if verdict.breaches > len(verdict.examples):
            found.append(f"{verdict.name}: {verdict.breaches} breaches in all")
    return found


def unsettled(world: World, client_ids: Sequence[str]) -> list[str]:
    """What connected sessions still hold although everything was acknowledged."""
    broker = world.broker
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
            "in flight": len(outbound.inflight),
            "pending": len(outbound.pending),
            "lagging": int(session.lagging),
            "feeding": session.feeding,
            "in the dispatch queue": session.addressed,
            "not idle": int(not outbound.is_idle()),
        }
        found += [f"{client_id}: {what}: {count}" for what, count in left.items() if count]
    return found
