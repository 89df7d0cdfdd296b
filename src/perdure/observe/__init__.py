"""What the broker tells about itself: counters, Prometheus, ``$SYS`` and logs."""

from perdure.observe.instruments import Histogram
from perdure.observe.metrics import Metrics
from perdure.observe.sys_topics import SysTopics

__all__ = ["Histogram", "Metrics", "SysTopics"]
