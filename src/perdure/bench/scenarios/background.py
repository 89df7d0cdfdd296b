"""What lies idle in the broker while something else is measured: it should cost nothing."""

from __future__ import annotations

from perdure.bench.client import Client
from perdure.bench.runner import Run

_BATCH_PUBLISHERS = 20
_TOPICS = 10_000


def prepare(run: Run) -> None:
    """Lay down offline sessions, retained and recorded messages, as the settings ask."""
    settings = run.settings
    if settings.recorded:
        topics = min(_TOPICS, settings.recorded)
        _publish(run, "recorded", "h", topics, settings.recorded)
    if settings.retained:
        _publish(run, "retained", "r", settings.retained, settings.retained, retain=True)
    if settings.offline:
        # Last: what was published before them does not concern them.
        sleepers = [_sleeper(run, number) for number in range(settings.offline)]
        run.churn(sleepers, f"{settings.offline:,} offline sessions")


def clear(run: Run) -> None:
    """Discard the offline sessions; retained messages of a shared broker are cleared too."""
    settings = run.settings
    if settings.offline:
        clean = [
            Client(
                _sleeper_id(run, number),
                version=settings.version,
                username=run.target.username,
                password=run.target.password,
            )
            for number in range(settings.offline)
        ]
        run.churn(clean, "clean up")


def _sleeper_id(run: Run, number: int) -> str:
    return f"{run.settings.root}-z{number:07}"


def _sleeper(run: Run, number: int) -> Client:
    return Client(
        _sleeper_id(run, number),
        version=run.settings.version,
        filters=((f"{run.settings.root}/#", run.settings.qos),),
        clean=False,
        username=run.target.username,
        password=run.target.password,
    )


def _publish(
    run: Run, what: str, level: str, topics: int, messages: int, *, retain: bool = False
) -> None:
    root = run.settings.root
    count = min(_BATCH_PUBLISHERS, topics)
    streams = [run.stream(f"{root}/{level}/{number:07}", retain=retain) for number in range(topics)]
    links = [run.publisher(f"{level}{k:02}", streams[k::count]) for k in range(count)]
    run.connect(links, f"{what} messages: connect")
    run.pump(links, f"{messages:,} {what} messages", each=messages // count)
    run.disconnect(links)
