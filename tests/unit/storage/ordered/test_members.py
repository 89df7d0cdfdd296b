"""Who is a member follows from the records, and from nothing else."""

from __future__ import annotations

from perdure.storage.ordered.members import (
    FORMER_MAX,
    GAP_MAX_US,
    Ended,
    Ending,
    Members,
    Verdict,
)
from perdure.storage.ordered.record import ANYHOW, Act, Expel, Forget, Join, Leave, Record


def record(node: str, incarnation: int, number: int, *acts: Act) -> Record:
    return Record(node, incarnation, number, acts)


def joined(*nodes: tuple[str, int]) -> Members:
    members = Members()
    for node, incarnation in nodes:
        verdict, ended = members.admit(record(node, incarnation, 1, Join(1)))
        assert (verdict, ended) == (Verdict.ADMITTED, [])
    return members


def names(members: Members) -> list[str]:
    return [member.name for member in members.current()]


def test_a_node_is_a_member_from_its_first_record_on() -> None:
    members = joined(("b", 2), ("a", 1))
    assert names(members) == ["a", "b"]
    assert members.holds("a", 1)
    assert not members.holds("a", 2)
    assert not members.holds("c", 0)


def test_who_does_not_join_counts_for_nothing() -> None:
    members = joined(("a", 1))
    for stale in (record("b", 2, 1), record("b", 2, 2, Join(1)), record("b", 0, 1, Join(1))):
        assert members.admit(stale) == (Verdict.STALE, [])
    assert names(members) == ["a"]


def test_a_record_counts_once_and_only_behind_all_before_it() -> None:
    members = joined(("a", 1))
    assert members.admit(record("a", 1, 2))[0] is Verdict.ADMITTED
    for number in (1, 2):
        assert members.admit(record("a", 1, number, Join(1))) == (Verdict.REPEATED, [])
    members.advance(50)
    gap = members.admit(record("a", 1, 4))
    assert gap == (Verdict.BROKEN, [Ended("a", 1, 50, Ending.BROKEN)])
    assert members.admit(record("a", 1, 3)) == (Verdict.STALE, [])
    assert names(members) == []


def test_the_next_process_of_a_name_ends_the_one_before() -> None:
    members = joined(("a", 1), ("b", 2))
    members.advance(70)
    verdict, ended = members.admit(record("a", 3, 1, Join(1)))
    assert verdict is Verdict.ADMITTED
    assert ended == [Ended("a", 1, 70, Ending.REPLACED)]
    assert members.admit(record("a", 1, 2)) == (Verdict.STALE, [])
    # Nor does its first record bring it back, however late it comes once more.
    assert members.admit(record("a", 1, 1, Join(1))) == (Verdict.STALE, [])
    assert members.holds("a", 3)


def test_an_expulsion_says_what_its_submitter_has_seen() -> None:
    members = joined(("a", 1), ("b", 2))
    seen = Expel("b", 2, 1)
    members.admit(record("b", 2, 2))  # it was only slow
    too_late = record("a", 1, 2, seen)
    members.admit(too_late)
    assert members.act(too_late) == []
    again = record("a", 1, 3, Expel("b", 2, 2))
    members.admit(again)
    assert members.act(again) == [Ended("b", 2, 0, Ending.EXPELLED)]
    members.admit(again)
    assert members.act(again) == []  # the first one counts
    assert members.admit(record("b", 2, 3)) == (Verdict.STALE, [])


def test_an_operator_knows_better() -> None:
    members = joined(("a", 1), ("b", 2))
    members.admit(record("b", 2, 2))
    told = record("a", 1, 2, Expel("b", 2, ANYHOW), Expel("b", 9, ANYHOW), Expel("c", 0, ANYHOW))
    members.admit(told)
    assert [ended.node for ended in members.act(told)] == ["b"]


def test_who_leaves_is_none_and_may_be_forgotten() -> None:
    members = joined(("a", 1), ("b", 2))
    bye = record("b", 2, 2, Leave())
    members.admit(bye)
    assert members.act(bye) == [Ended("b", 2, 0, Ending.LEFT)]
    told = record("a", 1, 2, Forget("b"), Forget("a"))
    members.admit(told)
    assert members.act(told) == []
    assert [member.name for member in members.all()] == ["a"]
    assert ("b", None) in members.take_changed()


def heard_each_second(members: Members, node: str, *, since_us: int, seconds: int) -> None:
    """A member is heard of once a second: of the others nothing."""
    for second in range(1, seconds + 1):
        members.advance(since_us + second * 1_000_000)
        member = members.get(node)
        assert member is not None
        members.admit(record(node, member.incarnation, member.number + 1))


def test_silence_is_by_the_logs_time() -> None:
    members = joined(("a", 1), ("b", 2))
    heard_each_second(members, "a", since_us=0, seconds=6)
    assert members.silent(6_000_000) == []
    members.advance(6_000_001)
    assert members.silent(6_000_000) == [Expel("b", 2, 1)]
    assert members.advance(1) == 6_000_001  # it never goes back


def test_a_clock_that_is_set_forward_is_no_silence() -> None:
    """Of a machine of the log, or of another one that leads now; nor is a log that stood still."""
    members = joined(("a", 1), ("b", 2))
    members.advance(3_600_000_000)
    members.admit(record("a", 1, 2))
    assert members.silent(6_000_000) == []
    assert members.silence_us("b") == GAP_MAX_US


def test_a_clock_that_is_set_back_keeps_nobody_who_is_silent() -> None:
    members = joined(("a", 1), ("b", 2))
    members.advance(3_600_000_000)
    heard_each_second(members, "a", since_us=0, seconds=7)
    assert members.now_us == 3_600_000_000
    assert members.silent(6_000_000) == [Expel("b", 2, 1)]


def test_silence_goes_on_behind_a_start() -> None:
    members = joined(("a", 1), ("b", 2))
    heard_each_second(members, "a", since_us=0, seconds=4)
    again = Members(members.all(), members.now_us)
    assert again.silence_us("b") == 4_000_000
    again.advance(5_000_000)
    assert again.silence_us("b") == 5_000_000
    # What was stored of a clock that was ahead counts on from where it is now.
    again = Members(members.all(), 3_600_000_000)
    heard_each_second(again, "a", since_us=0, seconds=2)
    assert again.silence_us("a") == 0


def test_what_all_read_is_written() -> None:
    members = Members()
    assert members.format == 0
    members.admit(record("a", 1, 1, Join(2)))
    assert members.format == 2
    members.admit(record("b", 2, 1, Join(1)))
    assert members.format == 1
    # One that is not there now comes back with the release that it had.
    leaving = record("b", 2, 2, Leave())
    members.admit(leaving)
    members.act(leaving)
    assert members.format == 1
    members.act(record("a", 1, 2, Forget("b")))
    assert members.format == 2


def test_what_is_stored_is_what_is_known() -> None:
    members = joined(("a", 1), ("b", 2))
    members.advance(9)
    members.admit(record("a", 3, 1, Join(1)))
    again = Members([member for _, member in members.take_changed() if member], members.now_us)
    assert again.all() == members.all()
    assert members.take_changed() == []
    assert again.admit(record("a", 1, 1, Join(1))) == (Verdict.STALE, [])


def test_earlier_processes_are_remembered_within_a_bound() -> None:
    members = Members()
    for incarnation in range(1, FORMER_MAX + 10):
        members.admit(record("a", incarnation, 1, Join(1)))
    known = members.get("a")
    assert known is not None
    assert len(known.former) == FORMER_MAX
    assert known.former[-1] == known.incarnation - 1


def test_what_is_heard_of_a_member_is_what_its_next_record_would_leave() -> None:
    heard, admitted = joined(("a", 1), ("b", 2)), joined(("a", 1), ("b", 2))
    for members in (heard, admitted):
        members.take_changed()
        members.advance(1_000_000)
    assert heard.is_next("a", 1, 2)
    for other in (("a", 1, 1), ("a", 1, 3), ("a", 2, 2), ("c", 1, 1)):
        assert not heard.is_next(*other)
    heard.hear("a", 2)
    admitted.admit(record("a", 1, 2))
    assert heard.all() == admitted.all()
    assert heard.silence_us("a") == admitted.silence_us("a") == 0
    changed = heard.take_changed()
    assert changed == admitted.take_changed()
    assert [member.heard_us for _, member in changed if member] == [1_000_000]
    heard.admit(record("a", 1, 4))
    assert not heard.is_next("a", 0, 3), "who is no member has no next one"
