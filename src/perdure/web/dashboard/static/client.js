// The page of the test client: forms to packets, and messages as rows. The broker judges it as any other client.
(() => {
  "use strict";
  const { Client, reason } = globalThis.perdureMqtt;
  const { number, bytes } = window.perdure;
  const find = (selector) => document.querySelector(selector);
  const made = (name, properties = {}, ...inner) => {
    const element = Object.assign(document.createElement(name), properties);
    element.append(...inner);
    return element;
  };
  const ROWS_MAX = Number(find(".bench").dataset.limit), SHOWN_BYTES_MAX = 16384, PREVIEW = 120, HEX_MAX = 512;
  const forms = { connect: find("#c-connect"), subscribe: find("#c-subscribe"), publish: find("#c-publish") };
  const body = find("#c-messages tbody"), empty = find(".bench .empty"), table = find("#c-messages").parentElement;
  const encoder = new TextEncoder();
  let client = null;
  const subscriptions = new Map();

  // What is there.
  const say = (name, text) => {
    const state = find("#c-state");
    state.className = `state ${name}`;
    state.lastElementChild.textContent = text;
  };
  const arrange = (isOpen) => {
    for (const each of forms.connect.querySelectorAll("input, select, button[type=submit]")) each.disabled = isOpen;
    forms.connect.querySelector("[type=submit]").hidden = isOpen;
    find("#c-leave").hidden = !isOpen;
    for (const each of [forms.subscribe, forms.publish]) each.querySelector("[type=submit]").disabled = !isOpen;
    if (!isOpen) { subscriptions.clear(); list(); }
  };
  const fail = (error) => say(client ? "connected wrong" : "expired", error.message);

  // Messages: the newest first, as many as the page holds.
  let count = 0, held = [], isHeld = false, arrived = [], frame = 0;
  const asText = (payload) => {
    try {
      const text = new TextDecoder("utf-8", { fatal: true }).decode(payload);
      return /[\u0000-\u0008\u000b\u000c\u000e-\u001f]/.test(text) ? null : text;
    } catch { return null; }
  };
  const hex = (payload) => [...payload.subarray(0, HEX_MAX)].map((each) => each.toString(16).padStart(2, "0")).join(" ");
  const pretty = (text) => { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } };
  const NAMES = { contentType: "content type", messageExpiry: "expires after, s", responseTopic: "response topic", correlationData: "correlation data", payloadFormat: "payload format", subscriptionId: "subscription id", topicAlias: "topic alias" };
  const told = (properties) => {
    const lines = [];
    for (const [name, value] of Object.entries(properties ?? {})) {
      if (value === undefined) continue;
      if (name === "user") for (const [key, each] of value) lines.push(`${key} = ${each}`);
      else lines.push(`${NAMES[name] ?? name}: ${value instanceof Uint8Array ? asText(value) ?? hex(value) : value}`);
    }
    return lines;
  };
  const row = ({ at, isOut, message }) => {
    const payload = message.payload.subarray(0, SHOWN_BYTES_MAX);
    const text = asText(payload), line = (text ?? hex(payload.subarray(0, 40))).replace(/\s+/g, " ");
    const preview = made("code", { textContent: line.length > PREVIEW ? `${line.slice(0, PREVIEW)}…` : line || "(empty)" });
    const more = made("details", { className: "peek" }, made("summary", {}, preview),
      made("pre", { textContent: text === null ? hex(payload) : pretty(text), tabIndex: 0 }),
      made("p", { className: "note", textContent: [bytes(message.payload.length), ...told(message.properties)].join("\n") }));
    const tags = [`QoS ${message.qos}`, message.retain ? "retained" : "", message.dup ? "again" : ""].filter(Boolean);
    const topic = made("th", { scope: "row" }, made("code", { textContent: message.topic }));
    for (const each of tags) topic.append(" ", made("span", { className: "tag", textContent: each }));
    return made("tr", {}, made("td", {}, made("time", { textContent: at.toLocaleTimeString(undefined, { hour12: false }) + "." + String(at.getMilliseconds()).padStart(3, "0") })),
      made("td", { className: isOut ? "from" : "to", textContent: isOut ? "out" : "in" }), topic, made("td", {}, more));
  };
  const draw = () => {
    frame = 0;
    const rows = arrived.splice(0).slice(-ROWS_MAX).map(row).reverse();
    body.prepend(...rows);
    while (body.rows.length > ROWS_MAX) body.lastElementChild.remove();
    const shown = body.rows.length;
    table.hidden = !shown;
    empty.hidden = Boolean(shown);
    find("#c-count").textContent = (count ? number(count) : "none yet") + (count > ROWS_MAX ? `, the last ${number(ROWS_MAX)} shown` : "") + (held.length ? `, ${number(held.length)} held back` : "");
  };
  const show = (each) => {
    count += 1;
    const list = isHeld ? held : arrived;
    list.push(each);
    if (list.length > ROWS_MAX) list.shift();
    frame ||= requestAnimationFrame(draw);
  };
  find("#c-hold").addEventListener("click", (event) => {
    isHeld = !isHeld;
    event.currentTarget.setAttribute("aria-pressed", String(isHeld));
    event.currentTarget.textContent = isHeld ? "Go on" : "Hold";
    if (!isHeld) arrived.push(...held.splice(0));
    draw();
  });
  find("#c-clear").addEventListener("click", () => { body.replaceChildren(); held = []; arrived = []; count = 0; draw(); });

  // Connect.
  const fields = (form) => Object.fromEntries([...form.querySelectorAll("[name]")].map((each) => [each.name, each.type === "checkbox" ? each.checked : each.value]));
  const select = find("#c-url");
  if (location.protocol === "https:") {
    // A page that came encrypted may open nothing that is not; what brought it may bring MQTT as well.
    for (const each of [...select.options]) if (each.value.startsWith("ws://")) each.remove();
    select.append(new Option(`wss://${location.host}/mqtt`, `wss://${location.host}/mqtt`));
  }
  find("#c-id").value = `dashboard-${Math.random().toString(36).slice(2, 8)}`;
  forms.connect.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = fields(forms.connect);
    const will = given.willTopic ? { topic: given.willTopic, payload: encoder.encode(given.willPayload), qos: Number(given.willQos), retain: given.willRetain } : undefined;
    const mine = new Client({
      message: (message) => show({ at: new Date(), isOut: false, message }),
      closed: (text) => { if (client === mine) { client = null; say("expired", text); arrange(false); } },
    });
    client = mine;
    arrange(true);
    say("wait", "connecting");
    try {
      const answer = await mine.connect(given.url, { ...given, properties: { sessionExpiry: Number(given.sessionExpiry) || undefined }, will });
      say("connected", `connected as ${answer.properties.assignedClientId ?? given.clientId}${answer.sessionPresent ? ", to the session it had" : ""}`);
      find("#c-filter").focus();
    } catch { /* It was said when it closed. */ }
  });
  find("#c-leave").addEventListener("click", () => { client?.disconnect(); forms.connect.querySelector("[type=submit]").focus(); });
  addEventListener("pagehide", () => client?.disconnect());

  // Subscribe.
  const list = () => {
    find("#c-subscriptions").replaceChildren(...[...subscriptions].map(([filter, qos]) => made("li", {},
      made("code", { textContent: filter }), made("span", { className: "tag", textContent: `QoS ${qos}` }),
      made("button", { type: "button", className: "quiet", textContent: "×", title: `Unsubscribe from ${filter}`, ariaLabel: `Unsubscribe from ${filter}`, onclick: () => leave(filter) }))));
  };
  const leave = async (filter) => {
    try {
      const answer = await client.unsubscribe([filter]);
      if (answer.codes[0] >= 0x80) throw new Error(reason(answer.codes[0], answer.properties));
      subscriptions.delete(filter);
      list();
      find("#c-filter").focus();
    } catch (error) { fail(error); }
  };
  forms.subscribe.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = fields(forms.subscribe);
    const user = [["replay-from", given.replay], ["filter", given.where]].filter(([, value]) => value);
    try {
      const answer = await client.subscribe([{ ...given, qos: Number(given.qos), retainHandling: Number(given.retainHandling) }], user.length ? { user } : undefined);
      if (answer.codes[0] >= 0x80) throw new Error(`${given.filter}: ${reason(answer.codes[0], answer.properties)}`);
      subscriptions.set(given.filter, answer.codes[0]);
      list();
    } catch (error) { fail(error); }
  });

  // Publish.
  const payloadOf = (given) => {
    if (!given.isHex) return encoder.encode(given.payload);
    const digits = given.payload.replace(/\s/g, "");
    if (!/^([0-9a-f]{2})*$/i.test(digits)) throw new Error("the payload is not whole bytes in hexadecimal");
    return Uint8Array.from(digits.match(/../g) ?? [], (each) => parseInt(each, 16));
  };
  forms.publish.addEventListener("submit", async (event) => {
    event.preventDefault();
    const given = fields(forms.publish), said = find("#c-published");
    if (!client) return;
    try {
      const user = given.user.split("\n").filter((line) => line.includes("=")).map((line) => [line.slice(0, line.indexOf("=")).trim(), line.slice(line.indexOf("=") + 1).trim()]);
      const message = {
        topic: given.topic, payload: payloadOf(given), qos: Number(given.qos), retain: given.retain,
        properties: {
          contentType: given.contentType || undefined, messageExpiry: Number(given.messageExpiry) || undefined, responseTopic: given.responseTopic || undefined,
          correlationData: given.correlationData ? encoder.encode(given.correlationData) : undefined, user: user.length ? user : undefined,
        },
      };
      const begun = performance.now();
      const answer = await client.publish(message);
      if (answer?.code >= 0x80) throw new Error(reason(answer.code, answer.properties));
      show({ at: new Date(), isOut: true, message });
      said.className = "note";
      said.textContent = answer ? `acknowledged after ${number(performance.now() - begun, 1)} ms${answer.code ? `: ${reason(answer.code, answer.properties)}` : ""}` : "sent; QoS 0 is not acknowledged";
    } catch (error) { said.className = "note warn"; said.textContent = error.message; }
  });
  find("#c-payload").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); forms.publish.requestSubmit(); }
  });
  arrange(false);
  draw();
})();
