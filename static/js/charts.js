// The only place that calls Plotly. A figure is JSON from helixweb/charts; colours that depend on the
// theme are written there as "var(--name)" and resolved here, again when the theme changes.
// What is in sight is painted at once, the rest when the browser has nothing else to do; what changes
// out of sight, or is folded away, is painted when it comes into sight.
"use strict";

window.HelixCharts = (() => {
  const config = { displaylogo: false, showSendToCloud: false, responsive: true, displayModeBar: false };
  const figures = new Map(); // element -> its figure as it was given last

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
  // Charts of a page share their moments, and lines that grow are written again with each of them.
  const writtenBefore = new Map();
  const local = (value) => {
    if (typeof value !== "string" || !MOMENT.test(value)) return value;
    if (!writtenBefore.has(value)) {
      if (writtenBefore.size > 5000) writtenBefore.clear();
      writtenBefore.set(value, written.format(new Date(value)));
    }
    return writtenBefore.get(value);
  };
  const inZone = (figure) => {
    if (figure.layout?.xaxis?.type !== "date") return figure;
    const { xaxis, shapes = [], annotations = [] } = figure.layout;
    return {
      data: figure.data.map((trace) => (Array.isArray(trace.x) ? { ...trace, x: trace.x.map(local) } : trace)),
      layout: {
        ...figure.layout,
        xaxis: { ...xaxis, ...(xaxis.range ? { range: xaxis.range.map(local) } : {}) },
        shapes: shapes.map((shape) => ({ ...shape, x0: local(shape.x0), x1: local(shape.x1) })),
        annotations: annotations.map((note) => ({ ...note, x: local(note.x) })),
      },
    };
  };
  // Plotly writes dates in English unless it is given the words of another language.
  const language = document.documentElement.lang || "en";
  if (!language.startsWith("en")) {
    const names = (count, date, how) =>
      Array.from({ length: count }, (_, index) => new Intl.DateTimeFormat(language, how).format(date(index)));
    const day = (index) => new Date(2023, 0, 1 + index); // a Sunday first
    const month = (index) => new Date(2023, index, 1);
    const directive = ({ type, value }) =>
      ({ year: "%Y", month: /^\d+$/.test(value) ? "%-m" : "%b", day: "%-d" })[type] ?? value;
    const pattern = (how) =>
      new Intl.DateTimeFormat(language, how).formatToParts(month(10)).map(directive).join("");
    const [year, short, number] = [{ year: "numeric" }, { month: "short" }, { day: "numeric" }];
    Plotly.register({
      moduleType: "locale", name: language, dictionary: {},
      format: {
        days: names(7, day, { weekday: "long" }), shortDays: names(7, day, { weekday: "short" }),
        months: names(12, month, { month: "long" }), shortMonths: names(12, month, short),
        year: pattern(year), month: pattern({ ...year, ...short }),
        dayMonth: pattern({ ...short, ...number }), dayMonthYear: pattern({ ...year, ...short, ...number }),
      },
    });
    config.locale = language;
  }
  // Plotly could find the room for labels by itself, but draws the chart two or three times to do so.
  const FONT = { family: "system-ui, sans-serif", size: 12 };
  const ruler = document.createElement("canvas").getContext("2d");
  ruler.font = `${FONT.size}px ${FONT.family}`;
  const roomFor = (axis) => {
    const labels = axis.ticktext ?? axis.categoryarray ?? ["000.0k"];
    const widest = Math.max(0, ...labels.map((label) => ruler.measureText(label).width));
    return Math.ceil(widest) + 12 + (axis.title?.text ? 24 : 0);
  };
  const themed = (plain) => {
    const figure = inZone(plain);
    const base = {
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { ...FONT, color: "var(--text)" },
      margin: { l: 8, r: 16, t: 12, b: 40 },
    };
    const axis = { gridcolor: "var(--line)", zerolinecolor: "var(--line)", linecolor: "var(--line)" };
    const layout = { ...base, ...figure.layout };
    for (const name of ["xaxis", "yaxis"]) layout[name] = { ...axis, ...(figure.layout || {})[name] };
    if (layout.yaxis2) layout.yaxis2 = { ...axis, ...layout.yaxis2 };
    const { l, r } = layout.margin;
    layout.margin = {
      ...layout.margin,
      l: layout.yaxis.automargin || !figure.data.some(hasAxes) ? l : Math.max(l, roomFor(layout.yaxis)),
      r: layout.yaxis2 ? Math.max(r, roomFor(layout.yaxis2)) : r,
    };
    return resolve({ data: figure.data, layout });
  };
  const hasAxes = (trace) => trace.type !== "sankey";

  const due = new Set(); // elements whose figure is newer than what is painted
  const near = new Set(); // elements in sight, or almost
  const SOON_PX = 300;
  const paint = (element) => {
    due.delete(element);
    const { data, layout: { height, width, ...layout } } = themed(figures.get(element));
    return Plotly.react(element, data, layout, config).then((graph) => {
      document.dispatchEvent(new CustomEvent("helix:drawn", { detail: { id: element.id } }));
      return graph;
    });
  };
  const sight = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) {
      if (isIntersecting) near.add(target); else near.delete(target);
      if (isIntersecting && due.has(target)) paint(target);
    }
  }, { rootMargin: `${SOON_PX}px` });
  const isNear = (element) => {
    const { top, bottom } = element.getBoundingClientRect();
    return element.checkVisibility() && bottom > -SOON_PX && top < innerHeight + SOON_PX;
  };
  // Its size is set before it is painted, so that nothing below it moves then; on the element, not in
  // the layout: Plotly forgets the layout's size when the window changes.
  const take = (element, figure) => {
    const { height, width } = figure.layout ?? {};
    if (height) element.style.height = `${height}px`;
    if (width) element.style.minWidth = `${width}px`;
    figures.set(element, figure);
    due.add(element);
  };
  const forgetRemoved = () => {
    for (const element of figures.keys()) {
      if (element.isConnected) continue;
      for (const kept of [figures, due, near]) kept.delete(element);
      sight.unobserve(element);
      Plotly.purge(element);
    }
  };
  const whenIdle = window.requestIdleCallback
    ? (next) => requestIdleCallback(next, { timeout: 2000 }) : (next) => setTimeout(next, 50);
  const paintRest = (elements) => {
    const next = elements.find((element) => element.checkVisibility() && due.has(element) && !element.data);
    if (next) whenIdle(() => { if (due.has(next)) paint(next); paintRest(elements); });
  };
  // All at once: asking where one is has the browser lay out the page.
  const show = (given) => {
    forgetRemoved();
    for (const [element, figure] of given) take(element, figure);
    const elements = given.map(([element]) => element);
    for (const element of elements.filter(isNear)) near.add(element);
    for (const element of elements) sight.observe(element);
    for (const element of elements) if (near.has(element)) paint(element);
    paintRest(elements);
  };
  const draw = async (element, figure) => {
    if (!figures.has(element)) { show([[element, figure]]); return; }
    take(element, figure);
    if (near.has(element)) await paint(element);
  };
  document.addEventListener("helix-theme", () => {
    colours.clear();
    for (const element of figures.keys()) if (element.checkVisibility()) paint(element); else due.add(element);
  });
  addEventListener("beforeprint", () => { for (const element of due) if (element.checkVisibility()) paint(element); });
  // <div class="chart" data-figure-json="id"> reads what json_script wrote.
  const start = (scope) => {
    const elements = [...(scope.querySelectorAll?.("[data-figure-json]") ?? [])];
    show(elements.map((element) => (
      [element, JSON.parse(document.getElementById(element.dataset.figureJson).textContent)])));
  };
  document.addEventListener("DOMContentLoaded", () => start(document));
  document.addEventListener("htmx:load", (event) => { if (event.target !== document.body) start(event.target); });
  return { draw, local, figure: (element) => figures.get(element) };
})();
