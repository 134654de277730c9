// The page of a node: its lines over time grow with every sample of its cluster.
"use strict";

(() => {
  const SHOWN_S = 15 * 60;
  const { node } = document.querySelector("main").dataset;
  const extend = (id, at, values) => {
    const chart = document.getElementById(id);
    const figure = chart && HelixCharts.figure(chart);
    if (!figure) return;
    const oldest = Date.parse(at) - SHOWN_S * 1000;
    figure.data.forEach((line, index) => {
      line.x.push(at);
      line.y.push(values[index]);
      while (Date.parse(line.x[0]) < oldest) { line.x.shift(); line.y.shift(); }
    });
    HelixCharts.draw(chart, figure);
  };
  document.addEventListener("helix:metrics", (event) => {
    const said = event.detail.nodes?.[node]; // of many nodes not every sample speaks
    if (!said) return;
    const share = (ratio) => (ratio === null ? null : 100 * ratio);
    const kv = said.kv_total_pages && said.kv_used_pages !== null ? said.kv_used_pages / said.kv_total_pages : null;
    extend("node-busy", event.detail.at, [share(said.busy_ratio), share(kv)]);
    extend("node-tokens", event.detail.at, [said.tokens_per_s]);
  });
})();
