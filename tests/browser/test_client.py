"""The page that is a client of MQTT."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from perdure.mqtt.decode import Decoder
from perdure.mqtt.encode import encode
from tests.browser.conftest import Scene
from tests.browser.test_dashboard import axe_finds

pytestmark = [pytest.mark.slow, pytest.mark.browser]


def test_the_page_is_a_client_of_mqtt(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/client?topic=bench/1&filter=bench/%23")
    page.get_by_label("Client id", exact=True).fill("bench")
    state, keys = page.locator("#c-state"), page.keyboard
    page.get_by_role("button", name="Connect").focus()
    keys.press("Enter")
    state.get_by_text("connected as bench").wait_for()
    # The field that comes next has the focus: the whole way goes by keyboard.
    assert page.evaluate("document.activeElement.id") == "c-filter"
    keys.press("Enter")
    page.locator("#c-subscriptions", has_text="bench/#").wait_for()
    rows = page.locator("#c-messages tbody tr")
    for qos in ("0", "1", "2"):
        page.locator("#c-pub-qos").select_option(qos)
        page.get_by_label("Payload", exact=True).fill(f'{{"qos": {qos}}}')
        keys.press("Control+Enter")
        rows.nth(2 * int(qos) + 1).wait_for()
    assert "acknowledged after" in page.locator("#c-published").inner_text()
    # What another client sends, with all that it can say; what is in it stays text.
    properties = Properties(PacketTypes.PUBLISH)
    properties.ContentType = "text/x"
    properties.UserProperty = [("site", "north")]
    device = scene.device("other-side", subscribe="bench/back")
    device.client.publish("bench/2", b"<b>\xc3\xa4</b>", 2, False, properties).wait_for_publish(10)
    page.get_by_text("<b>ä</b>").first.wait_for()
    rows.first.locator("summary").click()
    told = rows.first.inner_text()
    assert "content type: text/x" in told
    assert "site = north" in told
    assert "QoS 1" in told  # as it was subscribed
    assert axe_finds(page) == []
    page.get_by_role("button", name="Unsubscribe from bench/#").click()
    page.wait_for_function("() => !document.querySelector('#c-subscriptions li')")
    # A refusal says why, and what was recorded can be had.
    page.get_by_label("Topic filter").fill("bad/#/filter")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    state.get_by_text(re.compile("bad/#/filter|0x8f|0x81")).wait_for()
    device.leave()


def test_packets_are_what_the_broker_reads(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/client")
    made = page.evaluate(Path(__file__).with_name("packets.js").read_text())
    assert made["pieces"] == [["t/ä", 20_000, 65_535, [["a", "1"], ["a", "ä"]]]]
    whole = b"".join(bytes(each) for each in made["packets"])
    decoder = Decoder(server_side=True, packet_size_max=1 << 20)
    found = list(decoder.feed(whole))
    assert decoder.failure is None
    assert [found[0].client_id, found[0].will.topic, found[1].topic] == ["c", "w", "t/ä"]
    # Written again by the broker's own encoder they are the same bytes.
    assert b"".join(encode(each, 5) for each in found) == whole
