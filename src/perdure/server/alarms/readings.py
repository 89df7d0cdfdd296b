"""What is looked at for each alarm."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, final

from perdure.broker.services import Services
from perdure.config.schema import Config
from perdure.config.schema.alarms import AlarmsConfig
from perdure.observe.process_numbers import open_files
from perdure.server import process
from perdure.server.alarms.book import Reading
from perdure.server.alarms.forwarders import ForwarderReadings
from perdure.server.alarms.pipelines import PipelineReadings

OWED: Final = ("messages_dropped_queue_full", "messages_dropped_retention")


@final
class Readings:
    """Looks at a broker; counters are compared with those of the look before.

    Args:
        services: the parts of the broker.
        config: of the process.
        lag_us: how late the event loop was last.
        forwarders, pipelines: of the broker.
    """

    def __init__(
        self,
        services: Services,
        config: Config,
        lag_us: Callable[[], int],
        forwarders: ForwarderReadings,
        pipelines: PipelineReadings,
    ) -> None:
        self._forwarders, self._pipelines = forwarders, pipelines
        self._services = services
        self._config = config
        self._lag_us = lag_us
        self._before_us = services.clock.monotonic_us()
        self._refused = self._dropped = 0

    def look(self, alarms: AlarmsConfig) -> dict[str, Reading]:
        """By name of the alarm."""
        return dict(self._each(alarms))

    def _each(self, alarms: AlarmsConfig) -> Iterator[tuple[str, Reading]]:
        metrics = self._services.metrics
        yield from self._storage()
        if alarms.disk_percent and self._config.storage.traits.is_kept:
            used = _disk_percent(Path(self._config.storage.path))
            text = f"the file system of the data directory is {used:.0f} % full"
            yield "disk", Reading(used, alarms.disk_percent, text)
        if alarms.open_files_percent:
            share = 100 * (open_files() or 0) / max(1, process.open_files())
            text = f"{share:.0f} % of the open files that the system allows are in use"
            yield "open_files", Reading(share, alarms.open_files_percent, text)
        lag_ms = self._lag_us() / 1_000
        text = f"the event loop is {lag_ms:.0f} ms late"
        yield "loop_lag", Reading(lag_ms, alarms.loop_lag_ms, text)
        lag_s = metrics.oldest_unacked_seconds
        text = f"a client has not acknowledged a message for {lag_s} s (perdure top --sort oldest)"
        yield "delivery_lag", Reading(lag_s, alarms.delivery_lag_s, text)
        flapping = metrics.bans_temporary and len(
            self._services.flapping.bans(self._services.clock.now_us())
        )
        text = f"{flapping} clients connect and go again and again (perdure bans list)"
        yield "flapping", Reading(flapping, alarms.flapping_clients, text)
        past = self._services.past
        if past is not None:
            wait_s = round(past.waiting_s)
            text = f"replays have waited {wait_s} s for the archive: {past.problem or 'it is slow'}"
            yield "archive_wait", Reading(wait_s, alarms.archive_wait_s, text)
        yield from self._rates(alarms)
        yield from self._forwarders.look(alarms, self._services.clock.monotonic_us())
        yield from self._pipelines.look(alarms)

    def _storage(self) -> Iterator[tuple[str, Reading]]:
        """Whether messages are stored: what a store in a server is away for counts as well."""
        if not self._services.committer.writable:
            text = self._services.committer.failure_text
            yield "storage", Reading(1, 1, text or "the storage takes no writes")
        elif self._services.publish_path.disk_full:
            yield "storage", Reading(1, 1, "the disk budget is used up: publishers are refused")

    def _rates(self, alarms: AlarmsConfig) -> Iterator[tuple[str, Reading]]:
        metrics = self._services.metrics
        now_us = self._services.clock.monotonic_us()
        elapsed_s = max(1e-3, (now_us - self._before_us) / 1_000_000)
        refused = sum(metrics.refusals.values()) + sum(metrics.limit_refusals.values())
        dropped = sum(getattr(metrics, name) for name in OWED)
        rate = (refused - self._refused) / elapsed_s
        text = f"{rate:.0f} requests are refused in a second"
        yield "refused", Reading(rate, alarms.refused_rate, text)
        rate = (dropped - self._dropped) / elapsed_s
        text = f"{rate:.0f} messages that sessions were owed are dropped in a second"
        yield "dropped", Reading(rate, alarms.dropped_rate, text)
        self._before_us, self._refused, self._dropped = now_us, refused, dropped


def _disk_percent(path: Path) -> float:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return 0.0
    # What root keeps for itself is no room: free is what we may have.
    return 100 * usage.used / max(1, usage.used + usage.free)
