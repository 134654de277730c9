// The page of a plan run while it is solved: new incumbents move the curve, a clock counts. htmx swaps what
// the server says of them (_solving.html), and #run when the run's state changes.
"use strict";

(() => {
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
    // The fourth line is there where the objective is not the flow; the marks stand on it then. The fifth bounds it.
    const [flow, bound, marks, goal, most] = figure.data;
    // What was replayed after a reload may be drawn already.
    if (marks.x.length && marks.x[marks.x.length - 1] >= incumbent.elapsed_s) return;
    append(flow, incumbent.elapsed_s, incumbent.flow_tokens_per_s);
    append(bound, incumbent.elapsed_s, incumbent.upper_bound_tokens_per_s);
    marks.x.push(incumbent.elapsed_s);
    if (goal) append(goal, incumbent.elapsed_s, incumbent.figure.plotted);
    if (most) append(most, incumbent.elapsed_s, incumbent.objective_bound);
    marks.y.push(goal ? incumbent.figure.plotted : incumbent.flow_tokens_per_s);
    marks.customdata.push(incumbent.placer);
    marks.ids?.push(String(incumbent.id));
    HelixCharts.draw(chart, figure);
  }
  document.addEventListener("htmx:oobAfterSwap", (event) => {
    if (event.detail.target.id !== "curve-summary") return;
    const chart = document.getElementById("curve");
    const [title] = chart.getAttribute("aria-label").split(". ");
    chart.setAttribute("aria-label", `${title}. ${document.getElementById("curve-summary").textContent}`);
  });

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
    document.getElementById("elapsed").textContent = `${Math.floor(elapsed)} s`;
    moveEnd(elapsed);
  }, 1000);
})();
