"""The dashboard as a person uses it: with a mouse, with a keyboard, with less than all rights."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

import pytest

from tests.browser.conftest import PASSWORD, Scene, wait_until
from tests.support.bounds import HANG_S

pytestmark = [pytest.mark.slow, pytest.mark.browser]

PAGES = (
    "/ui/",
    "/ui/sessions",
    "/ui/sessions/pump-0",
    "/ui/storage",
    "/ui/access",
    "/ui/audit",
    "/ui/bans",
    "/ui/alarms",
    "/ui/slow",
    "/ui/slow?by=client",
    "/ui/traces",
    "/ui/nodes",
    "/ui/subscriptions",
    "/ui/shared",
    "/ui/messages",
    "/ui/retained",
    "/ui/retained/plant%2F7%2Fstate",
    "/ui/clients",
    "/ui/tokens",
    "/ui/config",
    "/ui/client",
    "/ui/pipelines",
    "/ui/forwarders",
    "/ui/forwarders/copy",
    "/ui/applications",
    "/ui/filters",
)
FIRST_PAGE_BYTES_MAX = 150_000


def ask(url: str, key: str, method: str = "GET") -> tuple[int, Any]:
    """What the API answers to a key."""
    request = urllib.request.Request(url, method=method, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, None


def ask_history(page: Any) -> str:
    """What the charts are drawn of."""
    text: str = page.evaluate("fetch('/ui/history').then((answer) => answer.text())")
    return text


def axe_finds(page: Any) -> list[str]:
    """What keeps somebody out of a page."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        f"{page.url}: {each['id']}: {node['html'][:160]}"
        for each in Axe().run(page).response["violations"]
        for node in each["nodes"]
    ]


def test_the_first_page_lives_and_is_small(scene: Scene, page: Any) -> None:
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")
    weights: list[float] = []
    session.on("Network.loadingFinished", lambda event: weights.append(event["encodedDataLength"]))
    page.goto(f"{scene.url}/ui/")
    page.locator("#pulse[data-state=live]").wait_for()
    page.locator(".uplot").first.wait_for()
    assert sum(weights) <= FIRST_PAGE_BYTES_MAX
    wait_until(lambda: json.loads(ask_history(page))["series"]["sessions_connected"])
    tile = page.locator("[data-live=sessions_connected]").first
    before = int(tile.inner_text())
    device = scene.device("comes-and-goes")
    page.wait_for_function(
        "n => Number(document.querySelector('[data-live=sessions_connected]').innerText) > n",
        arg=before,
    )
    device.leave()
    # Nothing moves by itself: one dot that did took a quarter of a core for each open tab.
    assert page.evaluate("document.getAnimations().length") == 0
    page.reload()  # there is history by now
    page.locator(".uplot").first.wait_for()
    page.locator("#pulse[data-state=live]").wait_for()
    # Paused: what it says stays.
    page.get_by_role("button", name="Pause live updates").click()
    assert page.locator("#asof").inner_text() == "paused"
    # While nobody points at a value the legend has the last one, also after somebody did.
    chart = page.locator(".chart[data-chart^=sessions]")
    chart.locator(".u-over").hover()
    page.mouse.move(0, 0)
    chart.locator(".u-legend", has_text=re.compile(r"connected\W*\d")).wait_for()
    page.get_by_role("button", name="Go on with live updates").click()
    page.locator("#pulse[data-state=live]").wait_for()


def test_a_broker_that_hangs_is_not_shown_as_alive(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/")
    page.locator("#pulse[data-state=live]").wait_for()
    with scene.hung():
        # The HTTP process gives up after 30 s; who looks at the page knows earlier.
        page.locator("#pulse[data-state=away]").wait_for(timeout=25_000)
        assert page.locator("#asof").inner_text() == "the broker does not answer"
    page.locator("#pulse[data-state=live]").wait_for()


def test_sessions_are_filtered_and_the_filter_is_in_the_address(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/sessions")
    rows = page.locator("#rows tbody tr")
    assert rows.count() >= 7
    page.get_by_label("Client id", exact=True).fill("mp-3")
    page.wait_for_url(re.compile("client_id=mp-3"))
    page.wait_for_function("() => document.querySelectorAll('#rows tbody tr').length === 1")
    page.reload()
    assert rows.count() == 1
    page.get_by_label("Client id", exact=True).fill("nobody")
    page.get_by_text("No session is like this").wait_for()
    page.goto(f"{scene.url}/ui/sessions?limit=25&state=offline")
    assert "connected" not in page.locator("#rows tbody").inner_text()


def test_sessions_are_put_in_order(scene: Scene, page: Any) -> None:
    for name in ("order-b", "order-c", "order-a"):
        scene.device(name, subscribe="x").leave()
    page.goto(f"{scene.url}/ui/sessions?client_id=order-")
    rows = page.locator("#rows tbody th a")
    assert rows.all_inner_texts() == ["order-a", "order-b", "order-c"]
    page.locator("#f-sort").focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**sort=-changed_at**")
    wait_until(lambda: rows.all_inner_texts() == ["order-a", "order-c", "order-b"])
    cli = page.get_by_role("button", name="Copy as CLI").first.get_attribute("data-copy")
    assert cli == "perdure sessions list --contains=order- --sort=-changed_at"


def test_a_listener_is_restarted_stopped_and_started(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/nodes")
    row = page.locator("tr", has_text="ws:127.0.0.1").first
    row.get_by_role("button", name="Restart").click()
    page.get_by_role("button", name="Do it").click()
    wait_until(lambda: page.locator("dialog[open]").count() == 0)
    wait_until(lambda: "takes connections" in row.inner_text())
    name = row.locator("th").inner_text()
    row.get_by_role("button", name="Stop").click()
    page.locator("#confirm-typed").fill(name)
    page.get_by_role("button", name="Do it").click()
    wait_until(lambda: "stopped" in row.inner_text())
    row.get_by_role("button", name=f"Start {name}").click()
    wait_until(lambda: "takes connections" in row.inner_text())


def focused(page: Any) -> str:
    """What the keyboard is at: its name for who cannot see it."""
    name: str = page.evaluate(
        "(document.activeElement.getAttribute('aria-label') ?? document.activeElement.innerText)"
    )
    return name


def test_a_listener_is_stopped_and_started_by_keyboard(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/nodes")
    keys, said = page.keyboard, page.locator("#toasts")
    name = page.locator("tr", has_text="ws:127.0.0.1").first.locator("th").inner_text()
    while focused(page) != f"Stop {name}":
        keys.press("Tab")
    # Whoever thinks better of it is where they were, and nothing has been asked.
    keys.press("Enter")
    assert page.locator("#confirm").get_attribute("aria-describedby") == "confirm-text"
    for _ in range(6):  # round and round: the page behind it is out of reach
        keys.press("Tab")
        place = page.evaluate("document.activeElement.closest('#confirm, body').localName")
        assert place == "dialog" or not page.evaluate("document.hasFocus()")
    keys.press("Escape")
    assert focused(page) == f"Stop {name}"
    assert said.inner_text() == ""
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "confirm-typed"
    with page.expect_navigation():
        keys.type(name)
        keys.press("Enter")
    said.get_by_text(f"Stop {name}: done").wait_for()
    assert focused(page) == f"Start {name}"
    with page.expect_navigation():
        keys.press("Enter")
    said.get_by_text(f"Start {name}: done").wait_for()
    # Of the two buttons that its row has now, the first.
    assert focused(page) == f"Restart {name}"


def test_who_changes_something_goes_on_from_there(scene: Scene, page: Any) -> None:
    keys, said = page.keyboard, page.locator("#toasts")
    page.goto(f"{scene.url}/ui/bans")
    page.get_by_text("Ban somebody").focus()
    keys.press("Enter")
    page.get_by_label("Who").fill("mallory <b>")
    with page.expect_navigation():
        keys.press("Enter")
    said.get_by_text("Ban: done").wait_for()
    assert focused(page) == "Ban somebody"
    page.get_by_role("button", name="Take back the ban of mallory <b>").press("Enter")
    keys.press("Tab")
    with page.expect_navigation():
        keys.press("Enter")
    said.get_by_text("Take back the ban of mallory <b>: done").wait_for()
    assert focused(page) == "Bans"
    # Several sessions: from the box that is chosen to the bar below, and told of the outcome.
    scene.device("keys-0", subscribe="x").leave()
    device = scene.device("keys-1", subscribe="x")
    page.goto(f"{scene.url}/ui/sessions?client_id=keys-")
    page.get_by_label("Choose all on this page").press("Space")
    assert page.get_by_role("status").filter(has_text="2 chosen").count() == 1
    keys.press("b")
    assert focused(page) == "Kick"
    keys.press("Enter")
    keys.type("kick 2")
    with page.expect_navigation():
        keys.press("Enter")
    said.get_by_text("1 kicked").wait_for()
    assert "1 not found" in said.inner_text()
    assert focused(page) == "Choose all on this page"
    wait_until(lambda: device.is_gone)


def test_a_list_that_is_leafed_through_by_arrows_changes_nothing(scene: Scene, page: Any) -> None:
    scene.cli("users", "add", "otto", "--role", "viewer", "--stdin", stdin=PASSWORD)
    page.goto(f"{scene.url}/ui/access")
    role = page.get_by_label("Role of otto", exact=True)
    change = page.get_by_role("button", name="Change the role of otto")
    role.focus()
    page.keyboard.press("ArrowDown")
    assert role.input_value() == "operator"
    page.keyboard.press("ArrowUp")
    assert change.is_hidden()
    page.keyboard.press("End")
    assert role.input_value() == "admin"
    assert '"role":"viewer"' in scene.cli("users", "list", "--json").split("otto")[1]
    page.keyboard.press("Tab")
    with page.expect_navigation():
        page.keyboard.press("Enter")
    page.locator("#toasts").get_by_text("Change the role of otto: done").wait_for()
    assert role.input_value() == "admin"
    scene.cli("users", "remove", "otto", "--yes")


def test_what_is_copied_is_filtered_as_the_list_is(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/sessions")
    assert page.get_by_role("button", name="Copy as CLI").count() == 1
    page.get_by_label("Client id", exact=True).fill("mp-3")
    page.wait_for_url(re.compile("client_id=mp-3"))
    page.locator("#copies [data-copy$='--contains=mp-3']").wait_for()
    cli = page.get_by_role("button", name="Copy as CLI")
    assert cli.get_attribute("data-copy") == "perdure sessions list --contains=mp-3"
    curl = page.get_by_role("button", name="Copy as curl").get_attribute("data-copy-curl")
    assert "client_id~=mp-3" in curl
    rows = json.loads(scene.cli("sessions", "list", "--contains=mp-3", "--json"))
    assert [row["client_id"] for row in rows] == ["pump-3"]


def test_every_table_is_copied_as_a_command_and_as_a_request(scene: Scene, page: Any) -> None:
    for path in PAGES:
        page.goto(f"{scene.url}{path}")
        for each in page.locator(".copies").all():
            assert each.locator("[data-copy]").count() == 1, path
            assert each.locator("[data-copy-curl]").count() == 1, path


def test_a_session_says_what_it_waits_for(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/sessions/pump-0")
    delivery = page.locator("#delivery")
    assert "waits for the client" in delivery.inner_text()
    assert "21" in delivery.inner_text()
    page.get_by_label("Topic", exact=True).fill("plant/7/temperature")
    page.get_by_role("button", name="Explain").click()
    page.locator("#explained .findings li").first.wait_for()
    assert page.locator("#explained").inner_text()
    # It is kept up to date.
    sent = page.locator("#delivery .value", has_text="22")
    scene.device("adds-one").publish("plant/7/temperature", b"x")
    sent.first.wait_for()


def test_what_comes_by_itself_touches_only_what_is_new(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/sessions/pump-2")
    old = page.evaluate_handle("[...document.querySelectorAll('#delivery, #delivery *')]")
    owed = page.locator("#delivery .value").nth(1)
    before = owed.inner_text()
    page.evaluate("document.querySelector('#delivery .note').textContent = 'made up'")
    scene.device("one-more").publish("plant/8/temperature", b"x")
    page.wait_for_function(
        "old => document.querySelectorAll('#delivery .value')[1].textContent !== old", arg=before
    )
    assert "made up" not in page.locator("#delivery").inner_text()
    assert old.evaluate("old => old.every((each) => each.isConnected)")


def test_a_client_is_kicked_and_may_come_back(scene: Scene, page: Any) -> None:
    device = scene.device("kick/me")
    page.goto(f"{scene.url}/ui/sessions/kick%2Fme")
    page.get_by_role("button", name="Kick").click()
    page.get_by_role("button", name="Do it").click()
    wait_until(lambda: device.is_gone)
    page.locator(".state.offline").first.wait_for()


def test_a_name_does_not_turn_its_line(scene: Scene, page: Any) -> None:
    device = scene.device("turns-\u202efdp.exe")
    page.goto(f"{scene.url}/ui/sessions?client_id=turns-")
    row = page.locator("#rows tr", has_text="turns-\\u202efdp.exe")
    row.first.wait_for()
    page.get_by_role("link", name="turns-").first.click()
    page.locator("h1", has_text="turns-\\u202efdp.exe").wait_for()
    assert "\u202e" not in page.locator("body").inner_text()
    # It is still this one that is acted on.
    page.get_by_role("button", name="Kick").click()
    page.get_by_role("button", name="Do it").click()
    wait_until(lambda: device.is_gone)


def test_a_name_is_typed_as_it_is_shown(scene: Scene, page: Any) -> None:
    name = " two  spaces \u202e and a turn "
    scene.device(name).leave()
    page.goto(f"{scene.url}/ui/sessions/{urllib.parse.quote(name)}")
    page.get_by_role("button", name="Discard").click()
    label = page.locator("#confirm-label").inner_text()
    assert label == "Type two spaces \\u202e and a turn to go on"
    yes = page.get_by_role("button", name="Do it")
    page.locator("#confirm-typed").fill("two spaces and a turn")
    assert yes.is_disabled()
    page.locator("#confirm-typed").fill(label.removeprefix("Type ").removesuffix(" to go on"))
    yes.click()
    page.wait_for_url("**/ui/sessions")
    assert "spaces" not in scene.cli("sessions", "list")


def test_a_reload_that_fails_is_not_done(scene: Scene, page: Any) -> None:
    bans = scene.data / "bans"
    before = bans.read_bytes() if bans.exists() else None
    page.goto(f"{scene.url}/ui/config")
    try:
        bans.write_text("nonsense\n")
        page.get_by_role("button", name="Reload").click()
        page.get_by_role("button", name="Do it").click()
        page.locator("#toasts .bad").filter(has_text="configuration: ").wait_for()
        assert page.locator("#toasts").get_by_text("done").count() == 0
    finally:
        if before is None:
            bans.unlink()
        else:
            bans.write_bytes(before)
    page.get_by_role("button", name="Reload").click()
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("Reload: done").wait_for()


def test_a_session_is_discarded_by_who_types_its_name(scene: Scene, page: Any) -> None:
    scene.device("pump-gone", subscribe="x").leave()
    page.goto(f"{scene.url}/ui/sessions/pump-gone")
    page.get_by_role("button", name="Discard").click()
    yes = page.get_by_role("button", name="Do it")
    typed = page.locator("#confirm-typed")
    typed.fill("pump-gon")
    assert yes.is_disabled()
    typed.fill("pump-gone")
    yes.click()
    page.wait_for_url("**/ui/sessions")
    assert "pump-gone" not in page.locator("#rows").inner_text()
    # Several at once.
    for number in range(3):
        scene.device(f"bulk-{number}", subscribe="x").leave()
    page.goto(f"{scene.url}/ui/sessions?client_id=bulk-")
    page.get_by_label("Choose all on this page").check()
    page.locator(".bulk-actions").get_by_role("button", name="Discard").click()
    typed.fill("discard 3")
    yes.click()
    page.get_by_text("No session is like this").wait_for()


def test_the_line_of_the_log_gets_a_generation(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/storage")
    bars = page.locator("a.generation")
    before = bars.count()
    assert page.locator("g.cursor").count() >= 1
    bars.last.press("Enter")
    page.wait_for_url(re.compile("/ui/messages[?]from=20"))
    assert page.locator("#rows tbody tr").count() > 1
    page.goto(f"{scene.url}/ui/storage")
    page.get_by_role("button", name="Begin a generation").click()
    page.get_by_role("button", name="Do it").click()
    page.wait_for_function(
        "n => document.querySelectorAll('a.generation').length === n + 1", arg=before
    )
    assert page.locator("a.generation.current").count() == 1


def test_focus_stays_where_it_is_when_a_list_is_drawn_anew(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/storage")
    page.get_by_role("button", name="Pause live updates").click()
    for what in ("a.generation", "#timeline tbody a, #timeline tbody button"):
        page.evaluate(
            """async what => {
                const drawn = new Promise(done =>
                    document.addEventListener("htmx:afterSwap", done, { once: true }));
                document.activeElement.blur();
                const target = { source: "#timeline", target: "#timeline", swap: "outerHTML" };
                htmx.ajax("GET", "/ui/storage", target);
                document.querySelector(what).focus();
                const before = document.querySelector("#timeline");
                const late = new Promise((_, no) => setTimeout(() => no(new Error("late")), 20000));
                await Promise.race([drawn, late]);
                if (document.querySelector("#timeline") === before) throw new Error("not drawn");
            }""",
            what,
        )
        assert page.evaluate("what => document.activeElement.matches(what)", what), what


def test_a_session_shows_its_messages_and_is_given_a_subscription(scene: Scene, page: Any) -> None:
    scene.device("held", subscribe="held/#").leave()
    device = scene.device("held-writer")
    device.publish("held/1", b"x")
    page.goto(f"{scene.url}/ui/sessions/held")
    assert "held/1" in page.locator("#held").inner_text()
    page.get_by_text("Subscribe for this client").click()
    page.get_by_label("Filter").fill("made/here")
    page.get_by_label("QoS", exact=True).select_option("2")
    page.get_by_role("button", name="Subscribe", exact=True).click()
    row = page.locator("[aria-labelledby=h-subs]").get_by_role("row", name="made/here")
    row.wait_for()
    device.publish("made/here", b"y")
    device.leave()
    page.locator("#held", has_text="made/here").wait_for()
    row.get_by_role("button", name="Unsubscribe").click()
    page.get_by_role("button", name="Do it").click()
    row.wait_for(state="detached")


def test_a_token_is_issued_shown_once_and_revoked(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/tokens")
    page.get_by_text("No token yet").wait_for()
    page.get_by_text("Issue a token").click()
    page.locator("#i-identity").fill("pump")
    page.locator("#i-rights").fill("read public/#, write devices/%c/data")
    page.get_by_role("button", name="Issue", exact=True).click()
    secret = page.locator("#secret code", has_text=re.compile("[0-9a-f]{40}")).inner_text()
    page.reload()
    assert secret not in page.content()
    row = page.get_by_role("row", name="pump")
    assert "write devices/%c/data" in row.inner_text()
    row.get_by_role("button", name="Revoke").click()
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("No token yet").wait_for()


def test_a_key_is_shown_once_and_revoked_at_once(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/access")
    page.get_by_text("Make a key").click()
    page.get_by_label("What it is for").fill("archive")
    page.get_by_role("button", name="Make", exact=True).click()
    secret = page.locator("#secret code", has_text="pk_").inner_text()
    url = f"{scene.url}/api/v1/sessions?limit=1"
    assert ask(url, secret)[0] == 200
    assert ask(f"{scene.url}/api/v1/sessions/pump-1", secret, "DELETE")[0] == 403
    page.reload()
    assert secret not in page.content()
    page.get_by_role("row", name="archive").get_by_role("button", name="Revoke").click()
    page.locator("#confirm-typed").fill(secret.split("_")[1])
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("No API key yet").wait_for()
    assert ask(url, secret)[0] == 401


def test_a_viewer_sees_less_and_is_logged_out_at_a_word(
    scene: Scene, page: Any, chromium: Any
) -> None:
    scene.cli("users", "add", "vera", "--role", "viewer", "--stdin", stdin=PASSWORD)
    context = chromium.new_context()
    viewer = context.new_page()
    viewer.goto(f"{scene.url}/ui/sessions?state=offline")
    viewer.wait_for_url(re.compile(r"/ui/login\?next="))
    viewer.get_by_label("User name").fill("vera")
    viewer.get_by_label("Password").fill("wrong" + PASSWORD)
    viewer.get_by_role("button", name="Log in").click()
    assert "wrong" in viewer.get_by_role("alert").inner_text()
    viewer.get_by_label("Password").fill(PASSWORD)
    viewer.get_by_role("button", name="Log in").click()
    viewer.wait_for_url(re.compile(r"/ui/sessions\?state=offline$"))
    viewer.locator("#pulse[data-state=live]").wait_for()
    assert viewer.get_by_role("link", name="Users and keys").count() == 0
    viewer.goto(f"{scene.url}/ui/sessions/pump-0")
    assert viewer.get_by_role("button", name="Discard").count() == 0
    assert viewer.goto(f"{scene.url}/ui/access").status == 403
    assert viewer.locator("h1").inner_text() == "You may not have this page"
    assert axe_finds(viewer) == []
    viewer.goto(f"{scene.url}/ui/storage")
    viewer.locator("#pulse[data-state=live]").wait_for()
    scene.cli("users", "logout", "vera")
    # The open page notices without a request of its own.
    viewer.wait_for_url(re.compile(r"/ui/login\?next=/ui/storage$"))
    assert axe_finds(viewer) == []
    context.close()
    page.goto(f"{scene.url}/ui/audit")
    rows = page.locator("#rows tbody").inner_text()
    assert "users.logout" in rows
    assert "users.login" in rows
    page.get_by_label("Of", exact=True).select_option("sessions")
    page.wait_for_url(re.compile("resource=sessions"))
    page.wait_for_function("() => !document.querySelector('#rows').innerText.includes('users.')")


def test_everything_goes_by_keyboard(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/")
    keys = page.keyboard
    keys.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    keys.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    keys.press("/")
    keys.type("pump-2")
    keys.press("Enter")
    page.wait_for_url(re.compile("client_id=pump-2"))
    for _ in range(60):
        keys.press("Tab")
        if page.evaluate("document.activeElement.innerText") == "pump-2":
            break
    keys.press("Enter")
    page.wait_for_url("**/ui/sessions/pump-2")
    keys.press("g")
    keys.press("l")
    page.wait_for_url("**/ui/storage")
    keys.press("t")
    chosen = page.evaluate("document.documentElement.dataset.theme")
    keys.press("?")
    assert page.locator("#keys").is_visible()
    keys.press("Escape")
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == chosen
    # A confirmation, from the first key to the last.
    scene.device("by-keys", subscribe="x").leave()
    page.goto(f"{scene.url}/ui/sessions/by-keys")
    page.get_by_role("button", name="Discard").focus()
    keys.press("Enter")
    keys.type("by-keys")
    keys.press("Enter")
    page.wait_for_url("**/ui/sessions")


def test_a_slow_subscriber_raises_an_alarm_on_every_page(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/slow")
    page.locator("#pulse[data-state=live]").wait_for()
    assert page.locator("#alarmed").is_hidden()
    device = scene.device("slow/one", subscribe="slow")
    device.client.manual_ack_set(True)
    scene.device("for-the-slow").publish("slow", b"x")
    # The page of the slow and the badge find it by themselves.
    page.get_by_role("link", name="slow/one").wait_for()
    page.locator("#alarmed", has_text="1 alarm").click()
    page.wait_for_url("**/ui/alarms")
    assert "has not acknowledged" in page.locator("#alarms tbody").first.inner_text()
    page.get_by_role("link", name="Look at Slow subscribers").click()
    page.get_by_label("Show first").select_option("inflight")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**/ui/slow?by=inflight")
    assert "slow/one" in page.locator("#rows tbody tr").first.inner_text()
    device.leave()


def test_a_client_is_traced_by_keyboard(scene: Scene, page: Any) -> None:
    device = scene.device("traced/one", subscribe="traced/#")
    page.goto(f"{scene.url}/ui/sessions/traced%2Fone")
    page.get_by_role("link", name="Trace", exact=True).focus()
    keys = page.keyboard
    keys.press("Enter")
    page.wait_for_url("**/ui/traces?kind=client&value=traced%2Fone")
    value = page.get_by_label("Client id or topic filter")
    assert value.input_value() == "traced/one"
    # A minute passes while a machine has much else to do, and a trace that has ended has no button.
    page.get_by_label("Seconds").fill("3600")
    page.get_by_label("256 bytes of each payload").focus()
    keys.press("Space")
    keys.press("Tab")
    keys.press("Enter")
    page.wait_for_url(re.compile("/ui/traces/[0-9a-f]+$"))
    page.get_by_text("Nothing went by yet").wait_for()
    device.publish("traced/<b>7</b>", b'{"on": 1}')
    # Live, the newest first; and as a file.
    page.locator(".events tbody tr").nth(3).wait_for()
    last, *_, first = page.locator(".events tbody tr").all_inner_texts()
    assert "publish" in first
    assert '{"on": 1}' in first
    assert "traced/<b>7</b>" in first
    assert int(last.split()[0]) >= 4
    with page.expect_download() as waited:
        page.get_by_role("link", name="Download as JSONL").click()
    lines = [json.loads(line) for line in waited.value.path().read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(1, len(lines) + 1))
    assert {line["event"] for line in lines} >= {"publish", "answered", "sent", "acked"}
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("ended; ").wait_for()
    assert scene.cli("trace", "list", "--json").count('"running":false') == 1
    assert axe_finds(page) == []
    device.leave()


def parts_of(page: Any) -> list[str]:
    """Names of the parts that the stream of a page brings from now on."""
    found: list[str] = []
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")

    def take(event: Any) -> None:
        if event["eventName"] == "part":
            found.append(json.loads(event["data"])["part"])

    session.on("Network.eventSourceMessageReceived", take)
    return found


def test_what_comes_while_a_button_is_pressed_does_not_replace_it(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/traces?kind=client&value=pressed")
    page.get_by_label("Seconds").fill("3600")
    page.get_by_role("button", name="Begin").click()
    page.get_by_role("button", name="Stop").focus()
    page.keyboard.down("Space")
    parts = parts_of(page)
    device = scene.device("pressed")
    while not any("/ui/traces/" in name for name in parts):
        page.wait_for_timeout(50)
    assert page.get_by_text("Nothing went by yet").is_visible()
    page.keyboard.up("Space")
    page.get_by_text("ended; ").wait_for()
    device.leave()


def test_what_came_meanwhile_is_shown_once_nobody_is_there(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/traces?kind=client&value=meanwhile")
    page.get_by_role("button", name="Begin").click()
    page.get_by_role("button", name="Stop").focus()
    parts = parts_of(page)
    device = scene.device("meanwhile")
    while not parts:
        page.wait_for_timeout(50)
    page.locator("#pause").focus()
    page.get_by_role("cell", name="connack").first.wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("ended; ").wait_for()
    device.leave()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_keeps_anybody_out(scene: Scene, page: Any, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    found = []
    for path in PAGES:
        page.goto(f"{scene.url}{path}")
        page.locator("#pulse[data-state=live]").wait_for()
        found += axe_finds(page)
    assert found == []


@pytest.mark.timeout(300)
def test_no_page_keeps_anybody_out_at_twice_the_size(scene: Scene, page: Any) -> None:
    """1280 pixels at 200 %: nothing is cut off, and what scrolls by itself does so by keyboard."""
    page.set_viewport_size({"width": 640, "height": 450})
    found = []
    for path in (*PAGES, "/ui/nowhere"):
        page.goto(f"{scene.url}{path}")
        page.locator("#pulse[data-state=live]").wait_for()
        found += axe_finds(page)
        if page.evaluate("document.documentElement.scrollWidth") > 640:
            found.append(f"{path}: wider than the window")
    assert found == []
    assert page.locator("h1").inner_text() == "There is no such resource"
    page.wrong.clear()  # the browser tells of the status


def test_topics_and_messages_are_found(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/subscriptions")
    page.get_by_label("Topic", exact=True).fill("plant/7/temperature")
    page.get_by_role("button", name="Match").click()
    page.locator("#matched").get_by_text("pump-1", exact=True).wait_for()
    page.goto(f"{scene.url}/ui/messages?filter=plant/%2B/state&from=1h")
    assert page.locator("#rows tbody tr").count() == 1
    page.locator("#rows summary").first.click()
    assert '"on": true' in page.locator("#rows pre").first.inner_text()
    page.goto(f"{scene.url}/ui/retained")
    page.get_by_text("match no topic that begins with $").wait_for()
    page.get_by_label("Topic filter").fill("plant/#")
    page.get_by_role("button", name="Show").click()
    page.get_by_text("match no topic").wait_for(state="detached")
    page.get_by_role("link", name="plant/7/state").click()
    page.get_by_text("7b 22 6f").wait_for(state="attached")
    page.goto(f"{scene.url}/ui/config?prefix=http.")
    assert "http.bind" in page.locator("#rows").inner_text()
    assert "--set" in page.locator("#rows").inner_text()
    # All at once are folded: a page that is read, and not scrolled.
    page.goto(f"{scene.url}/ui/config")
    section = page.locator("details", has=page.get_by_role("heading", name="retention", exact=True))
    assert page.evaluate("document.documentElement.scrollHeight") < 3_000
    assert not section.locator("table").is_visible()
    section.locator("summary").press("Enter")
    assert section.locator("table").is_visible()


def test_what_is_not_there_is_said_on_a_page(scene: Scene, page: Any) -> None:
    answer = page.goto(f"{scene.url}/ui/sessions/NoBody")
    assert answer.status == 404
    assert page.locator("h1").inner_text() == "There is no session 'NoBody'"
    page.wrong.clear()  # the browser tells of the status


def test_a_forwarder_rests_and_goes_on_and_a_filter_is_kept(scene: Scene, page: Any) -> None:
    page.goto(f"{scene.url}/ui/forwarders")
    page.get_by_role("link", name="copy").click()
    assert "configuration" in page.locator("main").inner_text()
    page.get_by_role("button", name="Pause", exact=True).click()
    page.get_by_role("button", name="Do it").click()
    page.get_by_role("button", name="Go on", exact=True).click()
    page.get_by_role("button", name="Pause", exact=True).wait_for()
    page.goto(f"{scene.url}/ui/filters")
    page.get_by_text("Keep a filter").click()
    page.get_by_label("Id", exact=True).fill("hot")
    page.get_by_label("Filter", exact=True).fill('{"t": {"$gt": 30}}')
    page.get_by_role("button", name="Keep", exact=True).click()
    page.get_by_role("row", name="hot").get_by_role("button", name="Delete").click()
    page.locator("#confirm-typed").fill("hot")
    page.get_by_role("button", name="Do it").click()
    page.get_by_text("No content filter is kept").wait_for()


def test_a_list_is_leafed_through_within_the_page(scene: Scene, page: Any) -> None:
    device = scene.device("many")
    done: list[int] = []
    device.client.on_subscribe = lambda *_: done.append(1)
    device.client.subscribe([(f"leaf/{number:03}", 1) for number in range(130)])
    wait_until(lambda: bool(done))
    page.goto(f"{scene.url}/ui/subscriptions?client_id=many")
    page.locator("#pulse[data-state=live]").wait_for()
    rows = page.locator("#rows tbody tr")
    assert rows.count() == 100
    page.evaluate("window.kept = 1")
    page.get_by_role("link", name="Next page").focus()
    page.keyboard.press("Enter")
    page.get_by_text("leaf/129").wait_for()
    assert (rows.count(), "cursor=" in page.url) == (30, True)
    assert page.evaluate("window.kept") == 1, "the document is the same"
    assert page.evaluate("document.activeElement.id") == "main", "nobody begins at the top again"
    # Back: the page as it was, and it lives.
    page.go_back()
    page.get_by_text("leaf/099").wait_for()
    assert rows.count() == 100
    page.locator("#pulse[data-state=live]").wait_for()
    assert page.get_by_label("Client id begins with").input_value() == "many"
    device.leave()


def test_a_page_names_other_parts_when_it_shows_others(scene: Scene, page: Any) -> None:
    opened: list[str] = []
    page.on("request", lambda each: opened.append(each.url) if "/ui/live" in each.url else None)
    page.goto(f"{scene.url}/ui/sessions/pump-4")
    page.locator("#pulse[data-state=live]").wait_for()
    assert len(opened) == 1
    assert opened[0].count("part=4%3A%2Fui%2Fsessions%2Fpump-4") == 2
    page.goto(f"{scene.url}/ui/traces?kind=client&value=elsewhere")
    page.locator("#pulse[data-state=live]").wait_for()
    page.get_by_role("button", name="Begin").click()
    page.get_by_text("Nothing went by yet").wait_for()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text("ended; ").wait_for()
    # There is nothing to keep any more.
    wait_until(lambda: page.locator("[data-keep]").count() == 0)
    wait_until(lambda: page.evaluate("1") == 1 and opened[-1].endswith("/ui/live"))
