// What a page does by itself: live values, lists that are drawn anew, keys. Changes are in changes.js.
(() => {
  "use strict";
  const csrf = document.querySelector('meta[name="csrf"]')?.content ?? "";
  const find = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const THIN = "\u2009";
  // To make one costs more than to use it a hundred times.
  const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });
  const MINUTE = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
  const SECOND = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

  // Numbers, as the server writes them.
  const number = (value, digits = 0) =>
    value == null ? "–" : value.toFixed(digits).replace(/\B(?=(\d{3})+(?!\d))/g, THIN);
  const scaled = (value, base, units, at) => {
    let unit = 0;
    while (value >= base && unit < units.length - 1) { value /= base; unit += 1; }
    return value.toFixed(unit === 0 || value >= at ? 0 : 1) + THIN + units[unit];
  };
  const bytes = (value) => value == null ? "–" : scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"], 100);
  const span = (seconds) => {
    if (seconds == null) return "–";
    if (seconds < 0.01) return Number((seconds * 1000).toFixed(1)) + THIN + "ms";
    if (seconds < 1) return Math.round(seconds * 1000) + THIN + "ms";
    const parts = [];
    let left = Math.floor(seconds);
    for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
      if (left >= length) { parts.push(Math.floor(left / length) + THIN + unit); left %= length; }
    }
    if (left || !parts.length) parts.push(left + THIN + "s");
    return parts.slice(0, 2).join(" ");
  };
  const rate = (value) => number(value, value > 0 && value < 10 ? 1 : 0);
  const formats = {
    number, bytes, span, rate,
    cores: (value) => value == null ? "–" : rate(value * 100) + THIN + "%",
    us: (value) => value == null ? "–" : span(value / 1e6),
    verdict: (value, data) => value === "ok" ? "Everything acknowledged is kept." : data.storage_reason,
  };

  const toast = (text, isBad = false) => {
    const made = document.createElement("div");
    made.className = isBad ? "toast bad" : "toast";
    made.textContent = text;
    find("#toasts").append(made);
    setTimeout(() => made.remove(), isBad ? 9000 : 4000);
  };

  // Moments: how long ago, again and again.
  const refreshTimes = (root = document) => {
    const now = Date.now();
    for (const each of all("time[data-at]", root)) {
      const exact = (now - Number(each.dataset.at)) / 1000;
      // After a minute to ten seconds: a table of moments is laid out anew with each word that changes.
      const away = Math.abs(exact) < 60 ? exact : Math.trunc(exact / 10) * 10;
      const text = Math.abs(away) < 1 ? "now" : away > 0 ? `${span(away)} ago` : `in ${span(-away)}`;
      if (each.textContent !== text) each.textContent = text;
    }
    for (const each of all("[data-tick]:empty", root)) {
      const format = Number(each.dataset.step) >= 86400 ? DAY : MINUTE;
      each.textContent = format.format(Number(each.dataset.tick));
    }
  };

  // Live values: one stream for the page, which rests while nobody looks.
  const page = window.perdure = { find, all, toast, number, bytes, rate, span, formats, listeners: [], overview: null };
  const pulse = find("#pulse");
  const pause = find("#pause");
  let stream = null;
  // The page is asked for anew, so that the login knows where to lead back to.
  const logIn = () => location.reload();
  const show = (state, text) => { pulse.dataset.state = state; find("#asof").textContent = text; };
  const value = (data, path) => path.split(".").reduce((at, name) => at?.[name], data);
  // Values come every two seconds. A broker that hangs says nothing, and its last ones are none of now.
  const SILENT_MS = 10_000;
  let heardAt = 0;
  setInterval(() => {
    if (stream && pulse.dataset.state === "live" && Date.now() - heardAt > SILENT_MS) show("away", "the broker does not answer");
  }, 2000);
  const apply = (data) => {
    page.overview = data;
    heardAt = Date.now();
    show("live", "as of " + SECOND.format(data.as_of_us / 1000));
    for (const each of all("[data-live]")) {
      const text = (formats[each.dataset.format] ?? number)(value(data, each.dataset.live), data);
      if (each.textContent !== text) each.textContent = text;
    }
    const verdict = find("#verdict");
    if (verdict) verdict.className = "verdict " + (data.storage === "ok" ? "good" : "bad");
    for (const listener of page.listeners) listener(data);
    refreshTimes();
    if (news.size) renewParts();
  };
  let alarms = null;
  const warn = (names) => {
    if (alarms && names.join() === alarms.join()) return;
    const badge = find("#alarmed");
    badge.hidden = !names.length;
    badge.lastChild.textContent = names.length === 1 ? "1 alarm" : `${names.length} alarms`;
    badge.title = names.join(", ");
    // What was raised before the page was opened is no news.
    for (const name of names) if (alarms && !alarms.includes(name)) toast(`Alarm: ${name.replaceAll("_", " ")}`, true);
    alarms = names;
  };
  // Parts of the page that are kept up to date come in its stream, each once it differs from what was sent before.
  const kept = (element) => `${element.dataset.every}:${element.dataset.keep}`;
  let opened = "";
  const liveUrl = () => {
    const named = all("[data-keep]").map((element) => `part=${encodeURIComponent(kept(element))}`);
    return named.length ? `/ui/live?${named.join("&")}` : "/ui/live";
  };
  const news = new Map();
  const hear = ({ part, html, problem }) => {
    if (problem) { toast(problem.message, true); return; }
    news.set(part, html.trim());
    renewParts();
  };
  const renewParts = () => {
    for (const target of all("[data-keep]")) {
      const text = news.get(kept(target));
      if (text === undefined || isHeld(target)) continue;
      news.delete(kept(target));
      if (lastTexts.get(target) === text) continue;
      lastTexts.set(target, text);
      const made = document.createElement("template");
      made.innerHTML = text;
      const whole = made.content.firstElementChild;
      if (whole?.id && whole.id === target.id) renew(target, whole); else renewAll(target, made.content);
      refreshTimes(target);
      reach(target);
    }
    retune();
  };
  const retune = () => { if (stream && liveUrl() !== opened) { close(); open(); } };
  const close = () => { stream?.close(); stream = null; };
  const open = () => {
    if (stream || document.hidden || pause.getAttribute("aria-pressed") === "true") return;
    stream = new EventSource(opened = liveUrl());
    stream.addEventListener("overview", (event) => apply(JSON.parse(event.data)));
    stream.addEventListener("part", (event) => hear(JSON.parse(event.data)));
    stream.addEventListener("alarms", (event) => warn(JSON.parse(event.data)));
    stream.addEventListener("away", () => show("away", "the broker does not answer"));
    stream.addEventListener("ended", () => { close(); logIn(); });
    stream.onerror = () => {
      show("away", "connection lost");
      // A refused stream is not opened again by the browser.
      if (stream?.readyState === EventSource.CLOSED) { close(); setTimeout(check, 3000); }
    };
  };
  const check = async () => {
    try {
      const answer = await fetch("/api/v1/me", { headers: { "X-Perdure-Auto": "1" } });
      if (answer.status === 401) { logIn(); return; }
    } catch { /* It is away; the next try comes. */ }
    open();
    if (!stream) setTimeout(check, 3000);
  };
  const setPaused = (paused) => {
    pause.setAttribute("aria-pressed", String(paused));
    pause.setAttribute("aria-label", paused ? "Go on with live updates" : "Pause live updates");
    if (paused) { close(); show("paused", "paused"); } else open();
  };
  if (pulse) {
    pause.addEventListener("click", () => setPaused(pause.getAttribute("aria-pressed") !== "true"));
    document.addEventListener("visibilitychange", () => document.hidden ? close() : open());
    addEventListener("pagehide", close);
    addEventListener("pageshow", open);
    open();
  }
  refreshTimes();

  // htmx: whose page it is, and what to do with refusals.
  document.addEventListener("htmx:configRequest", (event) => {
    event.detail.headers["X-CSRF-Token"] = csrf;
    if (event.detail.verb === "get") {
      for (const [name, each] of Object.entries(event.detail.parameters)) if (each === "") delete event.detail.parameters[name];
    }
  });
  // Nothing is replaced under somebody's hands: a button that is, between its being pressed and let go, does nothing.
  const isHeld = (target) => target.contains(document.activeElement) || Boolean(find("dialog[open]"));
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (event.detail.xhr.responseURL.endsWith("/ui/login")) { event.preventDefault(); logIn(); }
  });
  // Names and reasons that clients send may turn the direction of a line, so that it seems to say something else.
  const TURNS = /[\u202a-\u202e\u2066-\u2069]/g;
  const plain = (text) => text.replace(TURNS, (turn) => "\\u" + turn.charCodeAt(0).toString(16));
  const showTurns = (node) => {
    const texts = document.createTreeWalker(node, NodeFilter.SHOW_TEXT);
    for (let text = node.nodeType === Node.TEXT_NODE ? node : texts.nextNode(); text; text = texts.nextNode()) {
      // What stands in a form is sent as it is.
      if (text.data.search(TURNS) >= 0 && text.parentNode?.localName !== "textarea") text.data = plain(text.data);
    }
  };
  new MutationObserver((changes) => {
    for (const change of changes) {
      if (change.type === "characterData") showTurns(change.target);
      else for (const node of change.addedNodes) showTurns(node);
    }
  }).observe(document.body, { childList: true, characterData: true, subtree: true });
  showTurns(document.body);
  // What comes by itself is compared with what is there, and only what differs is touched: to lay a whole table out
  // anew every two seconds takes most of what an open page costs.
  const isText = (node) => node.nodeType === Node.TEXT_NODE;
  // Most elements have few attributes or none: a list of them for each costs more than all else here.
  const hasAsked = (one, other) => {
    for (let at = 0; at < one.attributes.length; at += 1) {
      const { name, value } = one.attributes[at];
      if (name.startsWith("hx-") && other.getAttribute(name) !== value) return false;
    }
    return true;
  };
  const asksAlike = (old, made) => hasAsked(made, old) && hasAsked(old, made);
  const isAlike = (old, made) => old.nodeName === made.nodeName && (isText(old) || (old.id === made.id &&
    asksAlike(old, made)));
  const renew = (old, made) => {
    if (old.isEqualNode(made)) return;
    if (!isAlike(old, made)) {  // htmx has read the hx- attributes when it came
      old.replaceWith(made);
      if (!isText(made)) window.htmx.process(made);
    } else if (isText(old)) {
      const text = plain(made.data);
      if (old.data !== text) old.data = text;
    } else {
      const told = old.localName === "time" ? old.dataset.at : old.dataset.tick ?? old.dataset.chart;
      for (let at = old.attributes.length - 1; at >= 0; at -= 1) {
        const { name } = old.attributes[at];
        // What somebody has folded out stays so.
        if (!made.hasAttribute(name) && !(name === "open" && old.localName === "details")) old.removeAttribute(name);
      }
      for (let at = 0; at < made.attributes.length; at += 1) {
        const { name, value } = made.attributes[at];
        if (old.getAttribute(name) !== value) old.setAttribute(name, value);
      }
      // The words of a moment are the page's own, and so is what a chart is drawn of.
      if (told === undefined || told !== (made.dataset.at ?? made.dataset.tick ?? made.dataset.chart)) renewAll(old, made);
    }
  };
  const lastTexts = new WeakMap();
  const renewAll = (old, made) => {
    const before = [...old.childNodes], after = [...made.childNodes];
    after.forEach((each, at) => {
      if (before[at]) renew(before[at], each);
      else { old.append(each); if (!isText(each)) window.htmx.process(each); }
    });
    for (const each of before.slice(after.length)) each.remove();
  };
  // Who has come to a link while its list was on the way stays on it.
  let held = "";
  const place = (element) => element.id ? `#${CSS.escape(element.id)}`
    : ["data-call", "data-copy", "href", "name"].filter((name) => element.hasAttribute(name))
      .map((name) => `${element.localName}[${name}="${CSS.escape(element.getAttribute(name))}"]`)[0] ?? "";
  document.addEventListener("htmx:beforeSwap", (event) => {
    if (!event.detail.shouldSwap) return;
    const at = document.activeElement;
    held = at !== event.detail.target && event.detail.target.contains(at) ? place(at) : "";
  });
  document.addEventListener("htmx:afterSwap", () => {
    // The last page has no link to a next one.
    if (held && document.activeElement === document.body) (find(held) ?? find("#main")).focus({ preventScroll: true });
    held = "";
  });
  document.addEventListener("htmx:afterSettle", () => { refreshTimes(); reach(); retune(); });
  document.addEventListener("htmx:responseError", (event) => toast(reason(event.detail.xhr.responseText), true));
  const reason = (text) => {
    try {
      const problem = JSON.parse(text);
      return problem.message + (problem.details?.hint ? `: ${problem.details.hint}` : "");
    } catch { return "that did not work"; }
  };

  Object.assign(page, { csrf, place, plain, reason });

  // Keys.
  const setTheme = () => {
    const root = document.documentElement;
    const isDark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("perdure.theme", root.dataset.theme);
    document.dispatchEvent(new Event("theme"));
  };
  find("#theme")?.addEventListener("click", setTheme);
  find("#help")?.addEventListener("click", () => find("#keys").showModal());
  find("#menu")?.addEventListener("click", (event) => {
    const isOpen = find("#nav").classList.toggle("open");
    event.currentTarget.setAttribute("aria-expanded", String(isOpen));
  });
  // What is wider than its place is scrolled by keyboard, too: with nothing in it that takes the focus, it does itself.
  const reach = (root = document) => {
    for (const each of all(".table, pre", root)) {
      if (each.hasAttribute("tabindex") && !("reached" in each.dataset)) continue;
      const isWide = each.scrollWidth > each.clientWidth;
      if (isWide && !find("a[href], button, input, select, summary, [tabindex]", each)) {
        each.tabIndex = 0;
        each.dataset.reached = "";
      } else if ("reached" in each.dataset) {
        each.removeAttribute("tabindex");
        delete each.dataset.reached;
      }
    }
  };
  reach();
  addEventListener("resize", () => reach());
  document.addEventListener("toggle", (event) => reach(event.target), true);
  let awaits = 0;
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), select, textarea, dialog")) return;
    const now = Date.now();
    if (now - awaits < 1500) {
      awaits = 0;
      const link = find(`#nav a[data-key="${CSS.escape(event.key)}"]`);
      if (link) { event.preventDefault(); location.assign(link.href); }
      return;
    }
    const keys = {
      "/": () => find("#search")?.focus(), g: () => { awaits = now; }, p: () => pause?.click(), t: setTheme,
      b: () => find(".bulk-actions:not([hidden]) button")?.focus(), "?": () => find("#keys").showModal(),
      Escape: () => { const open = find("details.who[open]"); if (open) { open.open = false; find("summary", open).focus(); } },
    };
    if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
  });
})();
