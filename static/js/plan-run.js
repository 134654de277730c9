// The page of a plan run while it is solved: new incumbents move the curve and the tiles, a clock counts.
// When the run's state changes, htmx swaps #run for what the server renders then.
"use strict";

(() => {
  const unknown = "—";
  const digits = (value) => (value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
  const tokens = (value) => (value === null ? unknown : value.toLocaleString("en", digits(value)));
  const percent = (value) => (value === null ? unknown : `${(value * 100).toFixed(1)} %`);
  const value = (incumbent) => incumbent.figure.plotted?.toLocaleString("en", { maximumSignificantDigits: 4 }) ?? unknown;
  // Events come from workers, who know no reader: units are said in the page's language here.
  const UNITS = {
    "idle; the demand is met": gettext("idle; the demand is met"),
    "of the demand is met; no node is idle": gettext("of the demand is met; no node is idle"),
    "nodes left idle": gettext("nodes left idle"), "decode tokens/s": gettext("decode tokens/s"),
    "million decode tokens per unit of price": gettext("million decode tokens per unit of price"),
  };
  const show = (name, text) => {
    const element = document.querySelector(`[data-live="${name}"]`);
    if (element) element.textContent = text;
  };
  // The caption, in the words of helixweb/charts/incumbent_curve.py.
  const say = (incumbent) => {
    const { objective, unit } = document.getElementById("solving").dataset;
    const { fill } = HelixTexts;
    const reached = fill(gettext("%(placer)s after %(elapsed_s)s s"), { placer: incumbent.placer, elapsed_s: incumbent.elapsed_s.toFixed(1) });
    const flow = `${tokens(incumbent.flow_tokens_per_s)} ${gettext("tokens/s")}`;
    const best = unit
      ? fill(gettext("%(name)s %(last)s %(unit)s by %(reached)s, with a flow of %(flow)s"), { name: objective, last: value(incumbent), unit, reached, flow })
      : fill(gettext("Best flow %(flow)s by %(reached)s"), { flow, reached });
    const ceiling = unit ? gettext("%(text)s; no flow can exceed %(bound)s tokens/s.") : gettext("%(text)s; no plan can exceed %(bound)s tokens/s.");
    const said = incumbent.upper_bound_tokens_per_s === null
      ? fill(gettext("%(text)s; no bound is proven yet."), { text: best })
      : fill(ceiling, { text: best, bound: tokens(incumbent.upper_bound_tokens_per_s) });
    const summary = document.getElementById("curve-summary");
    if (summary) summary.textContent = said;
    const [title] = document.getElementById("curve").getAttribute("aria-label").split(". ");
    document.getElementById("curve").setAttribute("aria-label", `${title}. ${said}`);
  };
  // A better placement gets a line of its own, with a way to look at it; a better bound alone does not.
  const list = (incumbent, goal) => {
    const body = document.querySelector("#incumbents tbody");
    const reached = goal ? incumbent.figure.plotted : incumbent.flow_tokens_per_s;
    if (!body || (body.dataset.best && reached <= Number(body.dataset.best))) return;
    body.dataset.best = reached;
    document.getElementById("no-incumbents")?.remove();
    body.closest("[hidden]")?.removeAttribute("hidden");
    const row = body.insertRow(0);
    const link = document.createElement("a");
    link.href = `incumbents/${incumbent.id}/`;
    link.textContent = `${incumbent.elapsed_s.toFixed(1)} s`;
    row.insertCell().append(link);
    for (const text of [tokens(incumbent.flow_tokens_per_s), ...(goal ? [value(incumbent)] : []), incumbent.placer]) {
      row.insertCell().textContent = text;
    }
    for (const cell of [...row.cells].slice(1, -1)) cell.className = "num";
  };
  // A mark on the curve leads to its placement. Plotly's events come from the element it drew on, which
  // htmx may replace.
  const follow = () => {
    const chart = document.getElementById("curve");
    if (!chart?.on || chart.dataset.followed) return;
    chart.dataset.followed = "yes";
    chart.on("plotly_click", (event) => {
      const id = event.points.find((point) => point.id)?.id;
      if (id) location.href = `incumbents/${id}/`;
    });
  };
  document.addEventListener("helix:drawn", follow);
  const seen = new Set();
  // The last point of a line is "now"; it keeps the value before it.
  const append = (line, elapsed, value) => {
    const now = Math.max(line.x.pop(), elapsed);
    line.y.pop();
    line.x.push(elapsed, now);
    line.y.push(value, value);
  };
  const moveEnd = (elapsed) => {
    const chart = document.getElementById("curve");
    const figure = chart && HelixCharts.figure(chart);
    if (!figure) return;
    for (const line of figure.data.filter((trace) => trace.mode === "lines")) line.x[line.x.length - 1] = Math.max(line.x[line.x.length - 1], elapsed);
    HelixCharts.draw(chart, figure);
  };

  const early = []; // incumbents that came before the chart was drawn
  document.addEventListener("helix:drawn", (event) => {
    if (event.detail.id === "curve") early.splice(0).forEach(grow);
  });
  document.addEventListener("helix:incumbent", (event) => grow(event.detail));
  function grow(incumbent) {
    const chart = document.getElementById("curve");
    if (!chart || !document.getElementById("solving") || seen.has(incumbent.id)) return;
    const figure = HelixCharts.figure(chart);
    if (!figure) { early.push(incumbent); return; }
    seen.add(incumbent.id);
    // The fourth line is there where the objective is not the flow; the marks stand on it then.
    const [flow, bound, marks, goal] = figure.data;
    // What was replayed after a reload may be drawn already.
    if (marks.x.length && marks.x[marks.x.length - 1] >= incumbent.elapsed_s) return;
    append(flow, incumbent.elapsed_s, incumbent.flow_tokens_per_s);
    append(bound, incumbent.elapsed_s, incumbent.upper_bound_tokens_per_s);
    marks.x.push(incumbent.elapsed_s);
    if (goal) append(goal, incumbent.elapsed_s, incumbent.figure.plotted);
    marks.y.push(goal ? incumbent.figure.plotted : incumbent.flow_tokens_per_s);
    marks.customdata.push(incumbent.placer);
    marks.ids?.push(String(incumbent.id));
    HelixCharts.draw(chart, figure);
    show("flow", tokens(incumbent.flow_tokens_per_s));
    show("bound", tokens(incumbent.upper_bound_tokens_per_s));
    show("gap", percent(incumbent.gap));
    show("figure", incumbent.figure.text);
    show("figure-unit", UNITS[incumbent.figure.unit] ?? incumbent.figure.unit);
    say(incumbent);
    list(incumbent, goal);
    const row = document.querySelector("#curve-table tbody")?.insertRow();
    const cells = [incumbent.elapsed_s.toFixed(1), ...(goal ? [value(incumbent)] : []), tokens(incumbent.flow_tokens_per_s),
      tokens(incumbent.upper_bound_tokens_per_s), incumbent.placer];
    for (const text of row ? cells : []) row.insertCell().textContent = text;
  }

  document.addEventListener("helix:simulation-progress", (event) => {
    const bar = document.getElementById(`simulation-${event.detail.simulation}-progress`);
    if (bar) bar.value = event.detail.progress;
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
    const elapsed = (performance.now() - startedAt) / 1000;
    show("elapsed", `${Math.floor(elapsed)} s`);
    moveEnd(elapsed);
  }, 1000);
})();
