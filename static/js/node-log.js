// The log on a node's page follows while its end is in view, and holds still while one reads above.
"use strict";

(() => {
  const lines = document.getElementById("log-lines");
  const isAtEnd = () => lines.scrollHeight - lines.scrollTop - lines.clientHeight < 8;
  const toEnd = () => { lines.scrollTop = lines.scrollHeight; };
  let missed = false;
  toEnd();
  lines.addEventListener("htmx:beforeRequest", (event) => {
    if (event.detail.requestConfig.triggeringEvent?.type !== "helix:node-log" || isAtEnd()) return;
    missed = true;
    event.preventDefault();
  });
  lines.addEventListener("htmx:afterSwap", toEnd);
  lines.addEventListener("scroll", () => {
    if (!missed || !isAtEnd()) return;
    missed = false;
    document.dispatchEvent(new CustomEvent("helix:node-log"));
  });
})();
