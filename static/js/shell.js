// The page shell: theme toggle, copy buttons, and one event stream per tab.
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

  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    await navigator.clipboard.writeText(document.querySelector(button.dataset.copy).textContent.trim());
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1500);
  });

  const main = document.querySelector("main");
  const topics = main?.dataset.topics;
  const pill = document.getElementById("live");
  if (!topics || !pill) return;
  const types = ["node", "link", "model", "incumbent", "plan-run", "deployment", "node-phase", "metrics", "event"];
  let source = null;
  let lastId = main.dataset.lastEventId ?? "";
  const show = (text, kind) => { pill.hidden = false; pill.textContent = text; pill.className = `badge ${kind}`; };
  const open = () => {
    const url = `/events?topics=${encodeURIComponent(topics)}` + (lastId ? `&last_event_id=${lastId}` : "");
    source = new EventSource(url);
    source.onopen = () => show("Live", "good");
    source.onerror = () => show("Reconnecting", "warn");
    for (const type of types) {
      source.addEventListener(type, (message) => {
        lastId = message.lastEventId;
        document.dispatchEvent(new CustomEvent(`helix:${type}`, { detail: JSON.parse(message.data) }));
      });
    }
  };
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { source?.close(); source = null; show("Paused", ""); }
    else if (!source) open();
  });
  addEventListener("pagehide", () => source?.close());
  // Not before htmx and the page's own script listen: Plotly loads between here and there.
  document.addEventListener("DOMContentLoaded", open);
})();
