// The page shell: theme toggle, time zone, keyboard, copy buttons, and one event stream per tab.
// Pages name their topics in <main data-topics="cluster:1,plan-run:2">; every server-sent event
// becomes a DOM event "helix:<type>" on document with its data in `detail`, which page scripts and
// htmx (hx-trigger="helix:node from:document") listen to. <main data-last-event-id="7"> replays what
// came after the page was rendered and before the stream opened.
"use strict";

(() => {
  const root = document.documentElement;
  const toggle = document.getElementById("theme-toggle");
  if (toggle) {
    toggle.addEventListener("click", () => {
      const dark = getComputedStyle(root).colorScheme === "dark"
        || (getComputedStyle(root).colorScheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
      const theme = dark ? "light" : "dark";
      root.dataset.theme = theme;
      document.cookie = `theme=${theme}; path=/; max-age=31536000; samesite=lax`;
      document.dispatchEvent(new CustomEvent("helix-theme"));
    });
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    document.dispatchEvent(new CustomEvent("helix-theme"));
  });

  // On a phone the pages' names are folded away.
  const menu = document.getElementById("menu-toggle");
  menu?.addEventListener("click", () => {
    const isOpen = document.getElementById("menu").classList.toggle("open");
    menu.setAttribute("aria-expanded", String(isOpen));
  });

  // The browser's time zone, for the next page: the server writes times. What the settings page says
  // comes before it.
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  if (zone && !document.cookie.split("; ").includes(`browser_zone=${zone}`)) {
    document.cookie = `browser_zone=${zone}; path=/; max-age=31536000; samesite=lax`;
  }

  // Keys, unless one is typing: "/" leads to the search field, "?" lists them, "g" and a letter open
  // a page.
  const keys = document.getElementById("keys");
  const pages = [...document.querySelectorAll(".nav [data-key]")];
  keys?.querySelector("[data-pages]").append(...pages.map((link) => {
    const line = document.createElement("li");
    const key = document.createElement("kbd");
    key.textContent = link.dataset.key.toUpperCase();
    line.append(key, ` ${link.textContent}`);
    return line;
  }));
  document.getElementById("keys-open")?.addEventListener("click", () => keys.showModal());
  const search = () => {
    const field = document.querySelector("[data-search]");
    field?.focus();
    field?.select();
    return field;
  };
  let going = false; // "g" was the last key
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.key === "Shift") return;
    if (event.target.closest("input, textarea, select, dialog, [contenteditable]")) return;
    const page = going ? pages.find((link) => link.dataset.key === event.key) : null;
    going = event.key === "g";
    if (page) page.click();
    else if (event.key === "?") keys?.showModal();
    else if (event.key !== "/" || !search()) return;
    event.preventDefault();
  });

  // What scrolls sideways can be reached by keyboard; what does not is no stop on the way.
  const reach = () => {
    for (const box of document.querySelectorAll(".scroll")) {
      if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
      else box.removeAttribute("tabindex");
    }
  };
  let asked = false;
  const reachSoon = () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; reach(); });
  };
  for (const name of ["DOMContentLoaded", "htmx:afterSettle", "helix:drawn"]) document.addEventListener(name, reachSoon);
  document.addEventListener("toggle", reachSoon, true);
  addEventListener("resize", reachSoon);

  // A fold that the reader opened or closed stays so when htmx replaces the part around it. One with
  // a form is closed again by sending it.
  const folds = new Map();
  const foldName = (fold) => `${fold.closest("[id]")?.id} ${fold.firstElementChild.textContent.trim()}`;
  document.addEventListener("click", (event) => {
    const fold = event.target.closest("summary")?.parentElement;
    if (fold) folds.set(foldName(fold), !fold.open);
  });
  document.addEventListener("submit", (event) => {
    const fold = event.target.closest("details");
    if (fold) folds.delete(foldName(fold));
  });
  const refold = () => {
    for (const fold of folds.size ? document.querySelectorAll("details") : []) {
      const isOpen = folds.get(foldName(fold));
      if (isOpen !== undefined) fold.open = isOpen;
    }
  };
  for (const name of ["htmx:afterSwap", "htmx:oobAfterSwap"]) document.addEventListener(name, refold);

  // A link to a part of the page opens the folds around that part, and the part itself if it is one.
  const unfold = (hash) => {
    const part = document.getElementById(hash.slice(1));
    const closed = [];
    for (let fold = part?.closest("details"); fold; fold = fold.parentElement.closest("details")) {
      if (!fold.open) closed.push(fold);
    }
    for (const fold of closed) { fold.open = true; folds.set(foldName(fold), true); }
    if (closed.length) part.scrollIntoView();
  };
  for (const name of ["DOMContentLoaded", "hashchange"]) addEventListener(name, () => unfold(location.hash));
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href]");
    if (link && link.href.split("#")[0] === location.href.split("#")[0]) unfold(link.hash);
  });

  // Browsers have a clipboard only on https and loopback; elsewhere the text is selected and copied
  // as by hand.
  const copied = async (element) => {
    try {
      await navigator.clipboard.writeText(element.textContent.trim());
      return true;
    } catch {
      getSelection().selectAllChildren(element);
      return document.execCommand("copy");
    }
  };
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const done = await copied(document.querySelector(button.dataset.copy));
    button.dataset.says ??= button.textContent;
    button.textContent = done ? gettext("Copied") : gettext("Selected: press Ctrl+C");
    setTimeout(() => { button.textContent = button.dataset.says; }, 1500);
  });

  // A form that leaves the page is sent once, however often its button is pressed.
  document.addEventListener("submit", (event) => {
    if (event.defaultPrevented || event.target.method !== "post") return;
    const buttons = [...event.target.querySelectorAll("button")];
    setTimeout(() => { for (const button of buttons) button.disabled = true; });
    // Back from the next page, the browser may show this one as it left it.
    addEventListener("pageshow", () => { for (const button of buttons) button.disabled = false; }, { once: true });
  });

  const main = document.querySelector("main");
  const topics = main?.dataset.topics;
  const pill = document.getElementById("live");
  if (!topics || !pill) return;
  const types = ["node", "link", "model", "incumbent", "plan-run", "explanation", "simulation", "simulation-progress", "model-mix", "deployment", "node-phase", "node-log", "profiling", "metrics", "alert", "event"];
  let source = null;
  let lastId = main.dataset.lastEventId ?? "";
  const show = (text, kind) => { pill.hidden = false; pill.textContent = text; pill.className = `badge ${kind}`; };
  // The browser reconnects by itself after a broken line, but not after an answer that is no stream:
  // that of a proxy while the site restarts, of the log-in page once the session has ended, or of a
  // site where one has as many pages open as it allows. Each time it is asked later, and not by all
  // pages at once; what the site says comes before that.
  let refusals = 0;
  const reopen = async () => {
    show(pill.dataset.reconnecting, "warn");
    const failed = source;
    if (failed.readyState !== EventSource.CLOSED) return;
    let pause_s = Math.min(60, 3 * 2 ** refusals++);
    for (;;) {
      await new Promise((resolve) => { setTimeout(resolve, 1000 * pause_s * (1 + Math.random() / 3)); });
      if (source !== failed) return;
      const answer = await fetch("/events", { redirect: "manual" }).catch(() => null);
      if (source !== failed) return;
      if (answer?.type === "opaqueredirect") { show(pill.dataset.loggedOut, "bad"); return; }
      if (answer?.status !== 429) { open(); return; }
      show(pill.dataset.tooMany, "warn");
      pause_s = Number(answer.headers.get("Retry-After")) || pause_s;
    }
  };
  // What nodes did comes as a table, a third as long as with the names of the fields at every node.
  const read = (text) => {
    const detail = JSON.parse(text);
    if (detail.nodes) {
      const { fields, rows } = detail.nodes;
      const named = (row) => Object.fromEntries(fields.map((field, index) => [field, row[index]]));
      detail.nodes = Object.fromEntries(Object.entries(rows).map(([name, row]) => [name, named(row)]));
    }
    return detail;
  };
  const open = () => {
    const url = `/events?topics=${encodeURIComponent(topics)}` + (lastId ? `&last_event_id=${lastId}` : "");
    source = new EventSource(url);
    source.onopen = () => { refusals = 0; show(pill.dataset.live, "good"); };
    source.onerror = reopen;
    for (const type of types) {
      source.addEventListener(type, (message) => {
        lastId = message.lastEventId;
        document.dispatchEvent(new CustomEvent(`helix:${type}`, { detail: read(message.data) }));
      });
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; show(pill.dataset.paused, ""); }
    else if (!source) open();
  });
  addEventListener("pagehide", () => source?.close());
  // Not before htmx and the page's own script listen: Plotly loads between here and there.
  document.addEventListener("DOMContentLoaded", open);
})();
