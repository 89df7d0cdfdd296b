// Changes: what a button or a form asks of the API, asked for once more where it takes something away, and what is said
// and where one goes on when it is done.
(() => {
  "use strict";
  const { find, all, toast, number, csrf, place, plain, reason } = window.perdure;

  // Asked for once more.
  const dialog = find("#confirm");
  // A name is typed as it is shown: spaces are drawn as one, and what would turn the line as its escape.
  const asShown = (text) => plain(text).trim().replace(/\s+/g, " ");
  const confirmed = (title, text, typed) => new Promise((resolve) => {
    find("#confirm-title").textContent = title;
    find("#confirm-text").textContent = text ?? "";
    const label = find("#confirm-label"), input = find("#confirm-typed"), yes = find("#confirm-yes");
    label.textContent = typed ? `Type ${typed} to go on` : "";
    label.hidden = input.hidden = !typed;
    input.value = "";
    const judge = () => { yes.disabled = Boolean(typed) && asShown(input.value) !== asShown(typed); };
    judge();
    input.oninput = judge;
    input.onkeydown = (event) => { if (event.key === "Enter" && !yes.disabled) { event.preventDefault(); dialog.close("yes"); } };
    dialog.returnValue = "no";
    dialog.onclose = () => resolve(dialog.returnValue === "yes" && !yes.disabled);
    dialog.showModal();
    (typed ? input : find("button", dialog)).focus();
  });
  const call = async (line, body) => {
    const [method, url] = line.split(" ");
    const answer = await fetch(url, {
      method,
      headers: { "X-CSRF-Token": csrf, ...(body ? { "Content-Type": "application/json" } : {}) },
      body: body ? JSON.stringify(body) : undefined,
    });
    const text = await answer.text();
    if (!answer.ok) throw new Error(reason(text));
    return text ? JSON.parse(text) : null;
  };
  // What a change has led to is said on the page that shows it, and who has pressed the button goes on from there: from
  // the same button, from what its row has now, from what was folded out, or from the heading above.
  const SAID = "perdure.said";
  const LIVE_REGION_MS = 100;  // what is in a live region when a page comes is not read out
  const nameOf = (element) => element.getAttribute("aria-label") ?? element.textContent.trim();
  const leave = (said, element, go) => {
    const row = element?.closest("tr")?.querySelector("th[scope=row]")?.textContent.trim() ?? "";
    const heading = element?.closest("[aria-labelledby]")?.getAttribute("aria-labelledby") ?? "";
    try {
      sessionStorage.setItem(SAID, JSON.stringify({ said, at: element ? place(element) : "", row, heading }));
    } catch { /* A browser may be told to keep nothing. */ }
    go();
  };
  const arrive = () => {
    let kept = null;
    try {
      kept = sessionStorage.getItem(SAID);
      sessionStorage.removeItem(SAID);
    } catch { /* It was told so. */ }
    if (!kept) return;
    const { said, at, row, heading } = JSON.parse(kept);
    setTimeout(() => toast(said), LIVE_REGION_MS);
    const line = row === "" ? null : all("th[scope=row]").find((each) => each.textContent.trim() === row)?.closest("tr");
    const same = at ? find(at) : null;
    const found = (same?.matches("form") ? find("input:not([type=hidden]), select", same) : same) ??
      (line ? find("button, a[href]", line) : null) ?? (heading ? find(`#${CSS.escape(heading)}`) : null);
    const folded = found?.closest("details:not([open])");
    const target = (folded ? find("summary", folded) : found) ?? find("#main");
    if (/^H\d$/.test(target.nodeName)) target.tabIndex = -1;
    target.focus();
  };
  const done = (element, result) => {
    const where = element.dataset.done;
    const later = result?.needs_restart?.length ? `; at a restart: ${result.needs_restart.join(", ")}` : "";
    const said = `${nameOf(element.matches("form") ? find("[type=submit]", element) : element)}: done${later}`;
    if (where === "reload") leave(said, element, () => location.reload());
    else if (where === "secret") {
      const box = find("#secret");
      box.hidden = false;
      const secret = result.secret ?? result.token;
      find("code", box).textContent = secret;
      find("button", box).dataset.copy = secret;
      find("button", box).focus();
    } else if (where) {
      const path = where.replace(/\{(\w+)\}/g, (_, name) => encodeURIComponent(result[name]));
      leave(said, null, () => location.assign(path));
    }
  };
  const busy = new WeakSet();
  const act = async (element, line, body) => {
    if (busy.has(element)) return;  // a second press asks for nothing more
    busy.add(element);
    const data = element.dataset;
    try {
      let text = data.text;
      if (data.preview) text = `${text}\n\n${describe(await call(`DELETE ${data.preview}`))}`;
      if (data.title && !await confirmed(data.title, text, data.type)) return;
      const result = await call(line, body);
      // A reload that fails in a part is answered with which and why, and not with an error.
      const failed = Object.entries(result?.failed ?? {}).map(([part, why]) => `${part}: ${why}`);
      if (failed.length) throw new Error(failed.join("; "));
      done(element, result);
    } catch (error) { toast(error.message, true); } finally { busy.delete(element); }
  };
  const describe = (found) => Object.entries(found ?? {}).filter(([, each]) => typeof each !== "object").map(([name, each]) => `${name.replaceAll("_", " ")}: ${each}`).join("\n");
  const fields = (form) => {
    const found = {};
    for (const input of all("[name]", form)) {
      const text = input.value.trim();
      if (input.type === "checkbox") found[input.name] = input.checked;
      else if (input.type === "number" || input.dataset.number !== undefined) { if (text) found[input.name] = Number(text); }
      else if (input.dataset.list !== undefined) { if (text) found[input.name] = text.split(input.dataset.list === "phrases" ? /\s*[,;]\s*/ : /[\s,]+/).filter(Boolean); }
      else if (text !== "") found[input.name] = input.type === "password" ? input.value : text;
    }
    return found;
  };
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!form.dataset.call) return;
    event.preventDefault();
    const body = fields(form);
    const line = form.dataset.call.replace(/\{(\w+)\}/g, (_, name) => {
      const text = encodeURIComponent(body[name]);
      delete body[name];
      return text;
    });
    act(form, line, body);
  });
  document.addEventListener("change", (event) => {
    const data = event.target.dataset;
    // Arrow keys change a closed list at each step: what it shows is put in force by a button, never by itself.
    const setting = event.target.closest("form[data-setting]");
    if (setting) find("[type=submit]", setting).hidden = find("option:checked", event.target).defaultSelected;
    if (data.all !== undefined) {
      for (const box of all('input[name="client_ids"]', event.target.closest("form"))) box.checked = event.target.checked;
    }
    count(event.target.closest("form[data-bulk]"));
  });
  const chosen = (form) => all('input[name="client_ids"]:checked', form).map((box) => box.value);
  const count = (form) => {
    if (!form) return;
    const bar = find(".bulk-actions", form);
    bar.hidden = !chosen(form).length;
    find("[data-count]", bar).textContent = number(chosen(form).length);
    find("[data-chosen]", form).textContent = bar.hidden ? "" : `${number(chosen(form).length)} chosen`;
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const data = button.dataset;
    if (data.copy !== undefined) copy(data.copy);
    else if (data.copyCurl !== undefined) {
      copy(`curl -H "Authorization: Bearer $PERDURE_TOKEN" '${location.origin}${data.copyCurl.replaceAll("'", "'\\''")}'`);
    } else if (data.call && button.type === "button") act(button, data.call, data.body ? JSON.parse(data.body) : undefined);
    else if (data.bulkCall) {
      const ids = chosen(button.form);
      const what = `${data.verb} ${ids.length}`;
      const shown = ids.slice(0, 12).join("\n") + (ids.length > 12 ? `\nand ${ids.length - 12} more` : "");
      if (!await confirmed(`${data.verb[0].toUpperCase()}${data.verb.slice(1)} ${ids.length} ${ids.length === 1 ? "session" : "sessions"}?`, shown, what)) return;
      try {
        const { items } = await call(data.bulkCall, { client_ids: ids });
        const counts = new Map();
        for (const { action } of items) counts.set(action, (counts.get(action) ?? 0) + 1);
        const said = [...counts].map(([action, count]) => `${number(count)} ${action.replaceAll("_", " ")}`).join(", ");
        leave(said, find("[data-all]", button.form), () => location.reload());
      } catch (error) { toast(error.message, true); }
    }
  });
  const copy = async (text) => {
    try { await navigator.clipboard.writeText(text); toast("Copied"); } catch { toast(text); }
  };

  arrive();
})();
