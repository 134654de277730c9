// Put into every page before its own scripts: which controls and links it shows, which of them were
// used, and which addresses the page asked for. Kept in localStorage, so that a visit of many pages
// adds up. Numbers in addresses and words become N: one row's button is like another's.
(() => {
  if (location.protocol === "about:") return;
  const KEY = "controls-of-the-site";
  const lists = JSON.parse(localStorage.getItem(KEY) ?? "{}");
  let isNew = false;
  const note = (list, key, value = 1) => {
    lists[list] ??= {};
    isNew ||= lists[list][key] !== value;
    lists[list][key] = value;
  };
  const keep = () => { // dear: once for many notes, and not for what is known
    if (isNew) localStorage.setItem(KEY, JSON.stringify(lists));
    isNew = false;
  };
  const plain = (text) => text.trim().replace(/\s+/g, " ").replace(/\d[\d,.]*/g, "N");
  const path = (url) => url.pathname.replace(/\/[0-9a-f]{16}\//, "/HEX/").replace(/\d+/g, "N");
  const address = (url) => [path(url), ...[...new Set(url.searchParams.keys())].sort()].join(" ");
  const nameOf = (control) => {
    const words = plain(control.dataset.says ?? control.textContent);
    if (control.localName === "summary") return `summary: ${words.replace(/^N reasons.*/, "N reasons")}`;
    if (!control.form || control.form.method === "dialog") return `${control.closest("main") ? path(location) : "every page"}: ${words}`;
    // By attribute: a field called "action" hides the property.
    const action = new URL(control.form.getAttribute("action") || "", location.href);
    return `${control.form.method} ${path(action)}: ${words}`;
  };
  const look = () => {
    if (document.documentElement.lang !== "en") return; // the same controls, in other words
    note("pages", address(new URL(location.href)));
    for (const control of document.querySelectorAll("button, summary")) note("controls", nameOf(control));
    for (const link of document.querySelectorAll("a[href]")) {
      const url = new URL(link.href);
      if (url.origin === location.origin) note("links", address(url), url.pathname + url.search);
    }
    keep();
  };
  document.addEventListener("DOMContentLoaded", look);
  document.addEventListener("htmx:afterSettle", look);
  document.addEventListener("click", (event) => {
    const control = event.target.closest?.("button, summary");
    if (!control || !event.isTrusted) return;
    note("used", nameOf(control));
    keep();
  }, true);
  new PerformanceObserver((list) => {
    for (const { name } of list.getEntries()) {
      const url = new URL(name);
      if (url.origin === location.origin && !url.pathname.startsWith("/static/")) note("asked", path(url));
    }
    keep();
  }).observe({ type: "resource", buffered: true });
})();
