"""How the dashboard shows values, places the log on a line, and serves its files."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("jinja2")

from perdure.admin.records.listeners import ListenerRow
from perdure.admin.records.timeline import Timeline, TimelineCursor, TimelineGeneration
from perdure.config.schema import RetentionConfig
from perdure.server.administration.timeline import retention_ends
from perdure.storage.contract import GenerationInfo
from perdure.web.dashboard import formats
from perdure.web.dashboard.assets import load_assets
from perdure.web.dashboard.messages import SHOWN_BYTES_MAX, view
from perdure.web.dashboard.storage import WIDTH, Going, draw, going
from perdure.web.dashboard.testclient import endpoints
from tests.unit.web.asgi import ask

HOUR_US = 3_600_000_000


def test_numbers_are_for_people() -> None:
    thin = formats.THIN_SPACE
    assert formats.number(1234567) == f"1{thin}234{thin}567"
    assert formats.rate(0.26) == "0.3"
    assert formats.rate(1234.5) == f"1{thin}234"
    assert formats.size(1023) == f"1023{thin}B"
    assert formats.size(1536) == f"1.5{thin}KiB"
    assert formats.size(300 * 1024**3) == f"300{thin}GiB"
    assert formats.span(90_061) == f"1{thin}d 1{thin}h"
    assert formats.span(0.02) == f"20{thin}ms"
    assert formats.number(None) == formats.size(None) == formats.span(None) == "–"
    assert "in 2" in formats.moment(2_000_001, 1)
    assert formats.moment(1 << 62, 0) == "–"
    at_us = 1_795_750_515_566_646
    assert formats.moment(at_us, at_us + 90_000_000) == (
        '<time datetime="2026-11-27T03:35:15.566Z" title="2026-11-27 03:35:15 UTC" '
        'data-at="1795750515566">1\u2009min 30\u2009s ago</time>'
    )
    assert str(formats.moment(at_us, 0, has_words=False)).endswith(
        'data-at="1795750515566"></time>'
    )
    assert formats.query({"a": "", "b": "x/y"}, c=None) == "?b=x%2Fy"
    assert formats.segment("a/b c#") == "a%2Fb%20c%23"


@pytest.mark.parametrize(
    ("payload", "text", "is_json"),
    [
        (b'{"a":1}', '{\n  "a": 1\n}', True),
        (b"21.5", "21.5", False),
        ("naïve".encode(), "naïve", False),
        (b"{no json", "{no json", False),
        (b"\x00\x01", None, False),
        (b"\xff\xfe", None, False),
        (b"", "", False),
    ],
)
def test_a_payload_is_text_json_or_bytes(payload: bytes, text: str | None, is_json: bool) -> None:
    shown = view(payload)
    assert (shown.text, shown.is_json, shown.is_cut) == (text, is_json, False)


def test_a_long_payload_is_cut() -> None:
    shown = view("ä".encode() * SHOWN_BYTES_MAX)
    assert shown.is_cut
    assert shown.text is not None
    assert set(shown.text) == {"ä"}
    assert len(shown.preview) < 200


def generation(number: int, since: int, bytes_: int) -> GenerationInfo:
    return GenerationInfo(number, 1, since * HOUR_US, 0, since * HOUR_US, 10, bytes_, 1)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RetentionConfig(time_s=0), [(0, None), (0, None), (0, None)]),
        (RetentionConfig(time_s=5 * 3600), [(7, "age"), (11, None), (0, None)]),
        (RetentionConfig(time_s=0, bytes=250), [(0, "size"), (0, None), (0, None)]),
        # By age the second would stay, and is too much all the same.
        (RetentionConfig(time_s=5 * 3600, bytes=150), [(7, "age"), (11, "size"), (0, None)]),
    ],
)
def test_what_retention_drops_next(config: RetentionConfig, expected: list[Any]) -> None:
    log = [generation(1, 1, 100), generation(2, 2, 100), generation(3, 6, 100)]
    found = retention_ends(log, config, 8 * HOUR_US)
    assert [(drops // HOUR_US, why) for _, drops, why in found] == expected
    assert [until // HOUR_US for until, _, _ in found] == [2, 6, 0]


def line(cursors: list[int]) -> Timeline:
    shown = [
        TimelineGeneration(
            generation=number,
            since=None,
            since_us=since,
            until=None,
            until_us=until,
            messages=1,
            bytes=bytes_,
            streams=1,
            drops_at=None,
            drops_at_us=None,
            drops_for=None,
            waits_for=None,
            sessions=0,
        )
        for number, since, until, bytes_ in (
            (1, HOUR_US, 3 * HOUR_US, 400),
            (2, 3 * HOUR_US, None, 100),
        )
    ]
    return Timeline(
        as_of=None,
        as_of_us=5 * HOUR_US,
        generations=shown,
        bytes=500,
        disk_bytes=None,
        keeps_s=3_600,
        keeps_bytes=None,
        rotates_s=1,
        rotates_bytes=1,
        checks_s=1,
        cursors=[
            TimelineCursor(client_id=str(at), at=None, at_us=at, connected=True) for at in cursors
        ],
        cursors_sampled=len(cursors),
        sessions_total=len(cursors),
    )


def test_the_line_is_drawn_to_scale() -> None:
    drawing = draw(line([0, HOUR_US, 2 * HOUR_US, 2 * HOUR_US + 1, 9 * HOUR_US]))
    first, second = drawing.bars
    assert first.width == pytest.approx(WIDTH / 2, abs=0.2)
    assert (first.height, second.height) == (120, 30)
    assert second.is_current
    assert drawing.edge == 75
    # What is before the first generation, or ahead of now, stands at an end.
    assert [(mark.x, mark.count) for mark in drawing.cursors] == [(0, 2), (24, 2), (100, 1)]
    assert [mark.at_us // HOUR_US for mark in drawing.ticks] == [2, 3, 4, 5]


def test_what_retention_takes_next_is_told() -> None:
    shown = line([])
    assert going(shown) == Going(0, 0, None)
    first, second = shown.generations
    first = msgspec.structs.replace(first, drops_for="size", drops_at_us=7)
    told = msgspec.structs.replace(shown, generations=[first, second])
    assert going(told) == Going(1, 400, 7)
    # One that a pipeline has still to read stays.
    first = msgspec.structs.replace(first, waits_for="archive")
    told = msgspec.structs.replace(shown, generations=[first, second])
    assert going(told) == Going(0, 0, 7)


def test_a_browser_is_led_to_listeners_that_it_can_reach() -> None:
    def row(kind: str, *addresses: str, path: str = "/mqtt") -> ListenerRow:
        return ListenerRow(
            name=kind, kind=kind, addresses=list(addresses), path=path, accepting=True,
            connections=0, connections_max=1, opened_total=0, refused_total=0,
            handshake_failures_total=0,
        )  # fmt: skip

    rows = [
        row("tcp", "0.0.0.0:1883", path=""),
        row("ws", "0.0.0.0:8083", ":::8083"),
        row("wss", "10.0.0.7:8084", path="/m"),
        row("ws", "10.0.0.8:1", path="/; script-src *"),
    ]
    assert [each.url for each in endpoints(rows, "broker.example")] == [
        "ws://broker.example:8083/mqtt",
        "wss://10.0.0.7:8084/m",
    ]
    # The name comes from the request: what could say more than a host in the policy is left out.
    assert [each.url for each in endpoints(rows, "a; script-src *")] == ["wss://10.0.0.7:8084/m"]


async def test_files_are_kept_for_good_by_their_content(app: Any) -> None:
    asset = load_assets()["app.js"]
    plain = await ask(app, asset.url, token=None)
    assert plain.body == asset.plain
    assert "immutable" in plain.headers["cache-control"]
    packed = await ask(app, asset.url, token=None, headers={"accept-encoding": "br, gzip"})
    assert gzip.decompress(packed.body) == asset.plain
    old = asset.url.replace(asset.url.split("/")[3], "0123")
    assert (await ask(app, old, token=None)).headers["cache-control"] == "no-store"
    assert (await ask(app, "/ui/static/x/..%2Fapp.js", token=None)).status == 404


def test_nothing_of_a_page_is_from_elsewhere_or_within_it() -> None:
    """What the policy would refuse is not there: scripts and styles in pages, other hosts."""
    from perdure.web.dashboard.render import TEMPLATES

    for path in sorted(Path(TEMPLATES).iterdir()):
        text = path.read_text()
        assert not re.search(r"<script>|<style|\sstyle=|\son[a-z]+=\"|javascript:|//cdn", text), (
            path
        )
        assert not re.search(r"(?:src|href)=\"https?:", text), path


@pytest.mark.parametrize(
    "client_id", ["plain", "with blank", "it's", "$(reboot)", "; true", "-x", "--data", "a\nb", ""]
)
def test_a_copied_command_has_a_client_id_as_one_word(client_id: str) -> None:
    words = shlex.split(f"perdure sessions show {formats.argument(client_id)}")
    assert words[-1] == client_id
    assert words[:3] == ["perdure", "sessions", "show"]
    assert words[3:-1] == (["--"] if client_id.startswith("-") else [])


def test_a_refusal_leaves_names_as_they_are() -> None:
    shown = [formats.sentence(text) for text in ("there is no session 'Pump-A'", "", "é")]
    assert shown == ["There is no session 'Pump-A'", "", "É"]
