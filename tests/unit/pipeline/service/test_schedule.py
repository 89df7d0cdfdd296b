"""Jobs are run when they are due."""

from __future__ import annotations

from perdure.pipeline.service.schedule import Job, Schedule


def test_the_longest_due_comes_first() -> None:
    schedule = Schedule([Job("archive", 10), Job("maintain", 100), Job("learn", 0)], 0)
    assert schedule.jobs == ("archive", "maintain")
    assert schedule.due(0) == "archive"
    schedule.ended("archive", 5)
    assert schedule.due(5) == "maintain"
    schedule.ended("maintain", 6)
    assert schedule.due(6) is None
    assert schedule.rest_s(6) == 9
    assert schedule.due(15) == "archive"
    schedule.ended("archive", 16, has_more=True)
    assert schedule.due(16) == "archive"
