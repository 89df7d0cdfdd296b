"""What is one statement, and what its rows mean; no server."""

from __future__ import annotations

from perdure.errors import Fenced
from perdure.model import Message
from perdure.storage.device_queue import Appended, EntryState, NewEntry, Trimmed
from perdure.storage.postgres import statements
from perdure.storage.postgres.rows import key_of
from perdure.storage.postgres.statements import APPEND_BYTES_MAX, APPEND_ROWS_MAX, AppendPlan

NOW_US = 1_700_000_000_000_000


def entry(client_id: str = "c", *, payload: bytes = b"x", **fields: int) -> NewEntry:
    message = Message("t", payload, 1, published_at_us=NOW_US)
    return NewEntry(client_id, message, 1, **fields)  # type: ignore[arg-type]


def sizes(*entries: NewEntry, limit: int = 1000) -> list[int]:
    """How many entries each statement has."""
    plan = AppendPlan(entries, now_us=NOW_US, limit=limit)
    return [len(statement.arguments[5]) for statement in plan.statements]  # type: ignore[arg-type]


def test_any_number_of_clients_is_one_statement() -> None:
    plan = AppendPlan([entry("b"), entry("a"), entry("b", position=7)], now_us=NOW_US, limit=10)
    (statement,) = plan.statements
    now_ms, limit, clients, names, owners, keys = statement.arguments[:6]
    assert (now_ms, limit) == (NOW_US // 1000, 10)
    assert (clients, names) == (["a", "b"], [None, None])
    assert (owners, keys) == ([2, 1, 2], ["b", "a", "b"])
    # What is NULL in all rows is not sent.
    assert statement.arguments[-1] is None
    assert statement.sql.count("$") == len(statement.arguments)


def test_identifiers_given_and_assigned_do_not_mix() -> None:
    assert sizes(entry(), entry(), entry("d", packet_id=1), entry("d", packet_id=2)) == [4]
    assert sizes(entry(), entry(packet_id=1)) == [1, 1]
    assert sizes(entry(packet_id=1), entry()) == [1, 1]
    assert sizes(entry(packet_id=1), entry(packet_id=2), entry(packet_id=1)) == [2, 1]


def test_no_entry_goes_for_another_of_the_same_statement() -> None:
    assert sizes(*[entry()] * 5, limit=2) == [2, 2, 1]
    assert sizes(entry("a"), entry("a"), entry("b"), entry("b"), limit=2) == [4]


def test_statements_are_bounded() -> None:
    clients = [entry(f"c{n}") for n in range(APPEND_ROWS_MAX + 1)]
    assert sizes(*clients) == [APPEND_ROWS_MAX, 1]
    large = bytes(APPEND_BYTES_MAX // 2)
    assert sizes(*[entry(payload=large)] * 5) == [2, 2, 1]


def test_a_position_that_the_same_call_has_had_is_not_sent() -> None:
    entries = [entry(position=5), entry(position=5), entry("d", position=5), entry(position=4)]
    plan = AppendPlan(entries, now_us=NOW_US, limit=10)
    row = {
        "serials": [9, 1],
        "packet_ids": [3, 1],
        "trimmed_by": [1, 1],
        "trimmed_serials": [8, 7],
        "trimmed_packet_ids": [2, None],
        "trimmed_types": ["PUBLISH", "PUBREL"],
    }
    assert plan.results([[row]]) == [
        Appended(
            9,
            3,
            trimmed=(Trimmed(7, 0, EntryState.PUBREL), Trimmed(8, 2, EntryState.PUBLISH)),
        ),
        Appended(0, 0, repeated=True),
        Appended(1, 1),
        Appended(0, 0, repeated=True),
    ]


def test_nothing_but_repeats_needs_no_result() -> None:
    names = ("trimmed_by", "trimmed_serials", "trimmed_packet_ids", "trimmed_types")
    row = {"serials": [None], "packet_ids": [None], **{name: [] for name in names}}
    plan = AppendPlan([entry(position=5)], now_us=NOW_US, limit=10)
    assert plan.results([[row]]) == [Appended(0, 0, repeated=True)]


def test_a_long_client_id_goes_with_its_name() -> None:
    long = "x" * 300
    (statement,) = AppendPlan([entry(long), entry("a")], now_us=NOW_US, limit=10).statements
    assert statement.arguments[2:4] == (["a", key_of(long)], [None, long])
    assert statements.take([(long, 3), ("a", 4)]).arguments == (
        [key_of(long), "a"],
        [long, None],
        [3, 4],
    )


def test_identifiers_of_many_clients_are_flat() -> None:
    asked = [("a", 1, [5, 6]), ("b", 2, []), ("c", 3, [7])]
    flat = (["a", "b", "c"], [1, 2, 3], [1, 1, 3], [5, 6, 7])
    assert statements.acknowledge(asked).arguments == flat
    released = statements.release([(*one, 100 * one[1]) for one in asked])
    assert released.arguments == (*flat[:2], [100, 200, 300], *flat[2:])
    assert statements.trim_through([("a", 1, 9)]).arguments == (["a"], [1], [9])
    assert statements.discard([("a", 1)]).arguments == (["a"], [1])
    assert statements.expire([("a", 4)], now_us=9_000, kept_us=2_000).arguments == (
        9_000,
        2,
        ["a"],
        [4],
    )


def test_a_negative_count_is_a_refusal() -> None:
    good, bad = statements.counts_of(["a", "b"], [{"counts": [2, -1]}])
    assert good == 2
    assert isinstance(bad, Fenced)
    assert "'b'" in bad.message
    assert statements.owners_of([{"owner_epochs": [1, 2]}]) == [1, 2]
