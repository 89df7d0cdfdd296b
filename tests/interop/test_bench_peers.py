"""Every broker that ``perdure bench`` can start: it starts, carries messages, and leaves nothing.

A broker that is not installed is skipped (`make peers` installs them).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.bench.measure import measure
from perdure.bench.peers import PEERS
from perdure.bench.settings import Settings
from perdure.bench.target import Target

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_carries_messages_and_ends(name: str, tmp_path: Path) -> None:
    peer = PEERS[name]
    if peer.program() is None:
        pytest.skip(f"{name} is not installed")
    started = peer.prepare(tmp_path)
    started.process.start()
    group = started.process.pid
    try:
        result = measure(
            Settings(
                scenario="p2p", publishers=3, subscribers=3, window=2, warmup_s=0.05, duration_s=0.2
            ),
            Target("127.0.0.1", started.port, process=started.process),
            broker=started.broker,
            directory=tmp_path,
        )
    finally:
        started.process.stop()
    totals = result.totals
    # At least the windows that publishers begin with.
    assert totals.acked == totals.received >= 6
    assert totals.lost == totals.repeated == totals.out_of_order == totals.unacknowledged == 0
    assert result.broker.version.split(".")[0].isdigit()
    assert result.phases[0].broker_cpu_s is not None
    assert not living(group), "something that the broker started is still running"


def living(group: int) -> list[str]:
    """Names of the processes of a group that have not ended."""
    names = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text(encoding="utf-8")
        except OSError:
            continue
        # pid (name) state parent group ...
        fields = text[text.rindex(")") + 2 :].split()
        if int(fields[2]) == group and fields[0] != "Z":
            names.append(text[text.index("(") : text.rindex(")") + 1])
    return names
