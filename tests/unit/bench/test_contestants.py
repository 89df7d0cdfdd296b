"""Variations are settings by their names; what they do not name stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure import __version__
from perdure.bench.contestants import Contestant, vary
from perdure.bench.peers import PEERS
from perdure.bench.settings import Settings
from perdure.errors import UsageError

BASE = Settings(scenario="p2p", publishers=7, window=5, seed=3)


def test_a_variation_changes_what_it_names() -> None:
    one = vary("qos=2, rate=0.5,durable=false", BASE)
    assert one.name == "perdure qos=2, rate=0.5,durable=false"
    assert (one.settings.qos, one.settings.rate, one.settings.durable) == (2, 0.5, False)
    assert (one.settings.publishers, one.settings.window, one.settings.seed) == (7, 5, 3)
    assert one.program is None


def test_another_perdure(tmp_path: Path) -> None:
    assert vary("program=/bin/true", BASE, program="/bin/false").program == "/bin/true"
    assert vary("qos=2", BASE, program="/bin/false").program == "/bin/false"


@pytest.mark.slow
def test_the_same_perdure_without_its_compiled_modules(tmp_path: Path) -> None:
    started = vary("build=pure", BASE).prepare(tmp_path)
    assert started.broker.name == "perdure build=pure"
    assert started.broker.version == f"{__version__} pure"
    assert vary("build=installed", BASE).environment == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("qos", "is not name=value"),
        ("qos=many", "qos: "),
        ("qos=3", "QoS 0, 1 or 2"),
        ("seed=2", "'seed' cannot vary"),
        ("colour=red", "'colour' cannot vary; there are build, "),
        ("build=fast", "build is one of installed, pure"),
    ],
)
def test_what_cannot_vary(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        vary(text, BASE)


def test_a_contestant_gives_the_broker_its_name(tmp_path: Path) -> None:
    one = Contestant(PEERS["nats"], BASE, name="theirs", program="/bin/true")
    assert one.prepare(tmp_path).broker.name == "theirs"
    assert Contestant(PEERS["nats"], BASE).name == "nats"
