"""The table of `$SYS` topics agrees with what a broker publishes, and the page with the table."""

from __future__ import annotations

import re
from pathlib import Path

from perdure.config.schema import Config, SysConfig
from perdure.observe.sys_topic_table import ALARMS, ROOT, reference, topic_names
from tests.support.sim_broker import SimBroker

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "sys-topics.md"


def test_page_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == reference(), "run: make docs"


def test_a_broker_publishes_what_the_page_names() -> None:
    """No topic more or less, and each with RETAIN for who subscribes later."""
    sim = SimBroker(config=Config(sys=SysConfig(interval_s=1)))
    sim.start()
    sim.run_for(3_000_000)
    sim.live.services.sys.tell(f"{ALARMS}/disk", b"{}")
    found = {message.topic for message in sim.live.services.sys.retained("$SYS/#")}
    assert all(message.retain for message in sim.live.services.sys.retained("$SYS/#"))
    on_page = set(re.findall(r"`(\$SYS/broker/[^`]+)` ", reference()))
    assert found == {
        topic.replace("<name>", "disk")
        for topic in on_page
        if not topic.startswith(f"{ROOT}/cluster/")
    }
    assert {topic.replace("<name>", "disk") for topic in on_page} == {
        *topic_names(is_clustered=True),
        f"{ROOT}/{ALARMS}/disk",
    }
