"""Owners of sessions: at each call and again at the write; through a backend in tests/contract."""

from __future__ import annotations

import pytest

from perdure.errors import Fenced
from perdure.storage.fencing import Fences


class Owners(dict[str, int]):
    """What is stored; may change between a call and the write."""

    def fences(self) -> Fences:
        return Fences(self.get)


def test_only_an_owner_that_is_there_and_not_overtaken_writes() -> None:
    fences = Owners(c1=5).fences()
    fences.check("c1", 5)
    fences.check("c1", 6)
    with pytest.raises(Fenced, match="epoch 4 after 5"):
        fences.check("c1", 4)
    with pytest.raises(Fenced, match="'c2' does not exist"):
        fences.check("c2", 9)
    fences.refuse_if_stale()


def test_a_record_needs_no_session_but_no_later_owner_either() -> None:
    fences = Owners(c1=5).fences()
    fences.put_record("new", 1)
    fences.put_record("c1", 5)
    with pytest.raises(Fenced, match="epoch 4 after 5"):
        fences.put_record("c1", 4)
    fences.refuse_if_stale()


def test_a_batch_knows_the_owner_that_it_writes_itself() -> None:
    fences = Owners(c1=5).fences()
    fences.put_record("c1", 7)
    fences.check("c1", 7)
    with pytest.raises(Fenced, match="epoch 6 after 7"):
        fences.check("c1", 6)
    fences.discard("c1")
    with pytest.raises(Fenced, match="does not exist"):
        fences.check("c1", 7)
    # After a discard the next record may have any epoch.
    fences.put_record("c1", 1)
    fences.check("c1", 1)
    fences.refuse_if_stale()


def test_a_batch_names_the_sessions_that_it_writes_for() -> None:
    fences = Owners(c1=5, c2=1, c3=1).fences()
    fences.check("c1", 5)
    fences.put_record("new", 1)
    fences.discard("c2")
    with pytest.raises(Fenced):
        fences.check("c3", 0)
    named = [name for name in ("c1", "c2", "c3", "new", "none") if fences.names(name)]
    assert named == ["c1", "c2", "new"]


@pytest.mark.parametrize("later", [{"c1": 6}, {}])
def test_an_owner_that_changed_before_the_write_refuses_the_batch(later: dict[str, int]) -> None:
    owners = Owners(c1=5)
    fences = owners.fences()
    fences.check("c1", 5)
    owners.clear()
    owners.update(later)
    with pytest.raises(Fenced, match="'c1' has a later owner or is gone"):
        fences.refuse_if_stale()


def test_the_lowest_epoch_of_a_batch_counts() -> None:
    owners = Owners(c1=5)
    fences = owners.fences()
    fences.check("c1", 5)
    fences.check("c1", 7)
    owners["c1"] = 6
    with pytest.raises(Fenced):
        fences.refuse_if_stale()


def test_a_record_is_refused_by_a_later_owner_and_not_by_a_session_that_went() -> None:
    owners = Owners(c1=5)
    fences = owners.fences()
    fences.put_record("c1", 6)
    fences.check("c1", 6)
    del owners["c1"]
    fences.refuse_if_stale()
    owners["c1"] = 6
    fences.refuse_if_stale()
    owners["c1"] = 7
    with pytest.raises(Fenced, match="'c1' has a later owner or is gone"):
        fences.refuse_if_stale()
