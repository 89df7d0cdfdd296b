"""What lies idle in the broker while something else is measured: it should cost nothing."""

from __future__ import annotations

from perdure.bench.client import Client
from perdure.bench.runner import Run
from perdure.mqtt.encode import encode
from perdure.mqtt.packets import Publish

_BATCH_PUBLISHERS = 20
_TOPICS = 10_000
_CLEAR_BATCH = 5000


def prepare(run: Run) -> None:
    """Lay down offline sessions, retained and recorded messages, as the settings ask, once."""
    settings = run.settings
    if run.target.is_laid:
        return
    run.target.is_laid = True
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
    """Take away what lies in a broker of the user's: retained messages and offline sessions."""
    settings = run.settings
    if run.target.process is not None:
        return
    run.target.is_laid = False
    if settings.retained:
        _clear_retained(run)
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


def _clear_retained(run: Run) -> None:
    """[MQTT-3.3.1-10] A retained message without a payload removes the one before it."""
    settings = run.settings
    link = run.publisher("clear", [run.stream(f"{settings.root}/clear")])
    run.connect([link], "clear retained messages: connect")
    for start in range(0, settings.retained, _CLEAR_BATCH):
        stop = min(start + _CLEAR_BATCH, settings.retained)
        link.client.out += [
            encode(Publish(_topic(run, "r", number), b"", 0, True), settings.version)
            for number in range(start, stop)
        ]
        link.flush()
        while link.unsent:
            run.sleep(0.01, "clear retained messages")
    run.disconnect([link])


def _topic(run: Run, level: str, number: int) -> str:
    # Not below the root: the wildcard of the offline sessions is about the traffic alone.
    return f"{run.settings.root}-idle/{level}/{number:07}"


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
    count = min(_BATCH_PUBLISHERS, topics)
    streams = [run.stream(_topic(run, level, number), retain=retain) for number in range(topics)]
    links = [run.publisher(f"{level}{k:02}", streams[k::count]) for k in range(count)]
    run.connect(links, f"{what} messages: connect")
    run.pump(links, f"{messages:,} {what} messages", each=messages // count)
    run.disconnect(links)
