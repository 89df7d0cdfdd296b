"""Looks at the broker and tells of alarms: the log, ``$SYS``, the webhook, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import final

import msgspec

from perdure.broker.services import Services
from perdure.config.schema import AlarmsConfig, Config
from perdure.config.units import format_time
from perdure.observe.logs import get_logger
from perdure.observe.sys_topic_table import ALARMS
from perdure.server.alarms.book import Alarm, AlarmBook
from perdure.server.alarms.forwarders import ForwarderReadings
from perdure.server.alarms.pipelines import PipelineReadings
from perdure.server.alarms.readings import Readings
from perdure.server.alarms.webhook import Webhook, read_secret

log = get_logger("alarms")


@final
class AlarmWatch:
    """Watches one broker.

    Args:
        services: the parts of the broker.
        config: of the process.
        lag_us: how late the event loop was last.
        forwarders, pipelines: of the broker.

    Attributes:
        book: the alarms.
        config: thresholds.

    Raises:
        ConfigError: the webhook's secret cannot be used.
    """

    def __init__(
        self,
        services: Services,
        config: Config,
        lag_us: Callable[[], int],
        forwarders: ForwarderReadings,
        pipelines: PipelineReadings,
    ) -> None:
        self.book = AlarmBook()
        self.config = config.alarms
        self._services = services
        self._node = config.node.name
        self._readings = Readings(services, config, lag_us, forwarders, pipelines)
        self._webhook: Webhook | None = None
        if config.alarms.webhook_url:
            secret = read_secret(config.alarms.webhook_secret_file)
            self._webhook = Webhook(config.alarms.webhook_url, secret)

    def reload(self, config: AlarmsConfig) -> None:
        """Take other thresholds."""
        self.config = config

    async def run(self) -> None:
        """Look at each interval, for ever."""
        if not self.config.check_interval_s:
            return
        async with asyncio.TaskGroup() as group:
            if self._webhook is not None:
                group.create_task(self._webhook.run(), name="alarm webhook")
            while True:
                self.look()
                await asyncio.sleep(self.config.check_interval_s)

    def look(self) -> None:
        """Take one look, and tell what has changed."""
        clock = self._services.clock
        changed = self.book.look(
            self._readings.look(self.config),
            now_us=clock.monotonic_us(),
            wall_us=clock.wall_us(),
            raise_after_us=self.config.raise_after_s * 1_000_000,
            clear_after_us=self.config.clear_after_s * 1_000_000,
        )
        for alarm in changed:
            self._tell(alarm)
        self._services.metrics.alarms = {(name,): 1 for name in self.book.raised}

    def _tell(self, alarm: Alarm) -> None:
        fields = {
            "alarm": alarm.name,
            "reason": alarm.message,
            "value": round(alarm.value, 3),
            "threshold": alarm.threshold,
        }
        if alarm.cleared_us:
            log.info("alarm.cleared", **fields)
        else:
            log.warning("alarm.raised", **fields)
        body = msgspec.json.encode(
            {
                "node": self._node,
                "state": "cleared" if alarm.cleared_us else "raised",
                **fields,
                "raised_at": format_time(alarm.raised_us),
                "cleared_at": format_time(alarm.cleared_us),
            }
        )
        self._services.sys.tell(f"{ALARMS}/{alarm.name}", body)
        if self._webhook is not None:
            self._webhook.put(body)
