// The page of a plan run while it is solved: new incumbents move the curve and the tiles, a clock counts.
// When the run's state changes, htmx swaps #run for what the server renders then.
"use strict";

(() => {
  const unknown = "—";
  const digits = (value) => (value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
  const tokens = (value) => (value === null ? unknown : value.toLocaleString("en", digits(value)));
  const percent = (value) => (value === null ? unknown : `${(value * 100).toFixed(1)} %`);
  const show = (name, text) => {
    const element = document.querySelector(`[data-live="${name}"]`);
    if (element) element.textContent = text;
  };
  const seen = new Set();

  document.addEventListener("helix:incumbent", (event) => {
    const chart = document.getElementById("curve");
    const incumbent = event.detail;
    if (!chart || !document.getElementById("solving") || seen.has(incumbent.id)) return;
    seen.add(incumbent.id);
    const figure = HelixCharts.figure(chart);
    const [flow, bound] = figure.data;
    // What was replayed after a reload may be drawn already.
    if (flow.x.length && flow.x[flow.x.length - 1] >= incumbent.elapsed_s) return;
    flow.x.push(incumbent.elapsed_s);
    flow.y.push(incumbent.flow_tokens_per_s);
    flow.customdata.push(incumbent.placer);
    bound.x.push(incumbent.elapsed_s);
    bound.y.push(incumbent.upper_bound_tokens_per_s);
    HelixCharts.draw(chart, figure);
    show("flow", tokens(incumbent.flow_tokens_per_s));
    show("bound", tokens(incumbent.upper_bound_tokens_per_s));
    show("gap", percent(incumbent.gap));
    const row = document.querySelector("#curve-table tbody")?.insertRow();
    const cells = [incumbent.elapsed_s.toFixed(1), tokens(incumbent.flow_tokens_per_s),
      tokens(incumbent.upper_bound_tokens_per_s), incumbent.placer];
    for (const text of row ? cells : []) row.insertCell().textContent = text;
  });

  let shown = null;
  let startedAt = 0;
  setInterval(() => {
    const solving = document.getElementById("solving");
    if (!solving || solving.dataset.status !== "running") return;
    if (shown !== solving) {
      shown = solving;
      startedAt = performance.now() - Number(solving.dataset.elapsed) * 1000;
    }
    show("elapsed", `${Math.floor((performance.now() - startedAt) / 1000)} s`);
  }, 500);
})();
