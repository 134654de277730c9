// The only place that calls Plotly. A figure is JSON from helixweb/charts; colours that depend on the
// theme are written there as "var(--name)" and resolved here, again when the theme changes.
"use strict";

window.HelixCharts = (() => {
  const config = { displaylogo: false, showSendToCloud: false, responsive: true, displayModeBar: false };
  const drawn = new Map();

  const resolve = (value, style) => {
    if (typeof value === "string") {
      const match = /^var\((--[a-z-]+)\)$/.exec(value);
      return match ? computed(match[1], style) : value;
    }
    if (Array.isArray(value)) return value.map((item) => resolve(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, resolve(item, style)]));
    }
    return value;
  };
  // light-dark() resolves only on a real property, so read it off a probe element; once for each
  // colour and theme, since every look has the browser lay the page out.
  const colours = new Map();
  const computed = (name) => {
    if (!colours.has(name)) colours.set(name, probed(name));
    return colours.get(name);
  };
  const probed = (name) => {
    const probe = document.createElement("span");
    probe.style.setProperty("color", `var(${name})`);
    probe.hidden = false;
    document.body.append(probe);
    const color = getComputedStyle(probe).color;
    probe.remove();
    return color;
  };
  // Moments come with their offset, which Plotly would ignore: they are written in the reader's zone.
  const MOMENT = /^\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)$/;
  const written = new Intl.DateTimeFormat("sv-SE", {
    timeZone: document.documentElement.dataset.zone || "UTC", dateStyle: "short", timeStyle: "medium",
  });
  const local = (value) => (typeof value === "string" && MOMENT.test(value) ? written.format(new Date(value)) : value);
  const inZone = (figure) => {
    if (figure.layout?.xaxis?.type !== "date") return figure;
    const { range } = figure.layout.xaxis;
    const xaxis = { ...figure.layout.xaxis, ...(range ? { range: range.map(local) } : {}) };
    return {
      data: figure.data.map((trace) => (Array.isArray(trace.x) ? { ...trace, x: trace.x.map(local) } : trace)),
      layout: { ...figure.layout, xaxis },
    };
  };
  const themed = (plain) => {
    const figure = inZone(plain);
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { family: "system-ui, sans-serif", size: 12, color: "var(--text)" },
      margin: { l: 56, r: 16, t: 12, b: 40 },
    };
    const axis = { gridcolor: "var(--line)", zerolinecolor: "var(--line)", linecolor: "var(--line)", automargin: true };
    const layout = { ...base, ...figure.layout };
    for (const name of ["xaxis", "yaxis"]) layout[name] = { ...axis, ...(figure.layout || {})[name] };
    if (layout.yaxis2) layout.yaxis2 = { ...axis, ...layout.yaxis2 };
    return resolve({ data: figure.data, layout });
  };
  const draw = (element, figure) => {
    drawn.set(element, figure);
    const { data, layout: { height, width, ...layout } } = themed(figure);
    // On the element, not in the layout: Plotly forgets the layout's size when the window changes.
    if (height) element.style.height = `${height}px`;
    if (width) element.style.minWidth = `${width}px`;
    return Plotly.react(element, data, layout, config).then((graph) => {
      document.dispatchEvent(new CustomEvent("helix:drawn", { detail: { id: element.id } }));
      return graph;
    });
  };
  const load = async (element) => {
    const response = await fetch(element.dataset.figure, { headers: { Accept: "application/json" } });
    if (!response.ok) { element.textContent = `This chart could not be loaded (${response.status}).`; return; }
    await draw(element, await response.json());
  };
  document.addEventListener("helix-theme", () => {
    colours.clear();
    for (const [element, figure] of drawn) if (element.isConnected) draw(element, figure);
  });
  // <div class="chart" data-figure="/url"> loads itself; <script type="application/json" data-for="id"> is
  // inline; <div class="chart" data-figure-json="id"> reads what json_script wrote.
  const start = (scope) => {
    scope.querySelectorAll?.("[data-figure]").forEach(load);
    scope.querySelectorAll?.("script[data-for]").forEach((script) => {
      draw(document.getElementById(script.dataset.for), JSON.parse(script.textContent));
    });
    scope.querySelectorAll?.("[data-figure-json]").forEach((element) => {
      draw(element, JSON.parse(document.getElementById(element.dataset.figureJson).textContent));
    });
  };
  document.addEventListener("DOMContentLoaded", () => start(document));
  document.addEventListener("htmx:load", (event) => { if (event.target !== document.body) start(event.target); });
  return { draw, load, figure: (element) => drawn.get(element) };
})();
