"""What the broker tells about itself: counters, Prometheus, ``$SYS`` and logs."""

from perdure.observe.metrics import Histogram, Metrics
from perdure.observe.sys_topics import SysTopics

__all__ = ["Histogram", "Metrics", "SysTopics"]
