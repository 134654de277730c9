// The monitor, and the charts of the overview: every sample moves the tiles, the lines, the bars and
// the table of nodes; when none comes for a while, the page says so instead of showing the last ones
// as if they were of now.
"use strict";

(() => {
  const {
    step, length, generation, age, silentAfter, simulated, cluster, range, kind,
  } = document.currentScript.dataset;
  const maxPoints = 900;
  const tableRows = 60;
  const unknown = "—";
  const known = (value) => value !== null && value !== undefined;
  const digits = (value) => (value >= 100 ? { maximumFractionDigits: 0 } : { maximumSignificantDigits: 3 });
  const rate = (value) => (known(value) ? value.toLocaleString("en", digits(value)) : unknown);
  const percent = (value) => (known(value) ? `${(value * 100).toFixed(1)} %` : unknown);
  const count = (value) => (known(value) ? value.toLocaleString("en") : unknown);
  const three = (value) => Number(value.toPrecision(3)).toLocaleString("en");
  const latency = (seconds) => {
    if (!known(seconds)) return unknown;
    if (seconds === 0) return "0 ms";
    if (seconds < 1e-3) return `${three(seconds * 1e6)} µs`;
    return seconds < 1 ? `${three(seconds * 1e3)} ms` : `${three(seconds)} s`;
  };
  const cell = (value) => (known(value) ? value.toLocaleString("en", { maximumSignificantDigits: 4 }) : unknown);
  const show = (name, text) => {
    for (const element of document.querySelectorAll(`[data-live="${name}"]`)) element.textContent = text;
  };
  const fill = (id, rows) => {
    const body = document.querySelector(`#${id}-table tbody`);
    body?.replaceChildren(...rows.map(tableRow));
  };
  const tableRow = (cells) => {
    const row = document.createElement("tr");
    for (const text of cells) row.insertCell().textContent = text;
    return row;
  };
  // As coarsely as quantities.py's age_text.
  const ageText = (seconds) => {
    const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"]].find(([least]) => seconds >= least) ?? [1, "s"];
    return `${size > 1 ? Math.floor(seconds / size) : Math.round(seconds)} ${unit}`;
  };
  const pagesUsed = (node) => (node?.kv_total_pages ? node.kv_used_pages / node.kv_total_pages : null);

  // Lines over time: id of the chart -> what its two lines show of a sample, and a value's text.
  const counted = (unit) => (value) => `${rate(value)} ${unit}`;
  const lines = {
    tokens: [(sample) => [sample.output_tokens_per_s, sample.prompt_tokens_per_s], counted(gettext("tokens/s"))],
    requests: [(sample) => [sample.running, sample.waiting], counted(gettext("requests"))],
    ...Object.fromEntries(["ttft", "itl", "tpot", "e2e"].map((kind) => (
      [kind, [(sample) => [sample[`${kind}_p50_s`], sample[`${kind}_p95_s`]].map((value) => value ?? null), latency]]))),
  };
  // Appends a sample to the lines of a chart; returns whether it was due (at is in milliseconds).
  const append = (figure, sample, values) => {
    const at = Date.parse(sample.at);
    const times = figure.data[0].x;
    const last = times.length ? Date.parse(times[times.length - 1]) : -Infinity;
    if (at - last < Number(step) * 900) return false; // a tenth of a step early is in time
    const broken = Number.isFinite(last) && at - last > Math.max(4, 2.5 * step) * 1000;
    const oldest = at - Number(length) * 1000;
    figure.data.forEach((line, index) => {
      if (broken) { line.x.push(new Date((last + at) / 2).toISOString()); line.y.push(null); }
      line.x.push(sample.at);
      line.y.push(values[index]);
      const gone = Math.max(line.x.findIndex((time) => Date.parse(time) >= oldest), line.x.length - maxPoints);
      line.x.splice(0, gone);
      line.y.splice(0, gone);
    });
    figure.layout.xaxis.range = [new Date(oldest).toISOString(), sample.at];
    return true;
  };
  const extend = (samples) => {
    for (const [id, [valuesOf, textOf]] of Object.entries(lines)) {
      const chart = document.getElementById(id);
      const figure = chart && HelixCharts.figure(chart);
      const due = figure ? samples.filter((sample) => append(figure, sample, valuesOf(sample))) : [];
      if (!due.length) continue;
      HelixCharts.draw(chart, figure);
      const values = valuesOf(due[due.length - 1]);
      const said = figure.data.flatMap(({ name }, index) => (known(values[index]) ? `${name} ${textOf(values[index])}` : []));
      describe(chart, said.length
        ? HelixTexts.fill(gettext("Now: %(names)s."), { names: said.join(", ") })
        : gettext("Nothing is measured now."));
      const body = document.querySelector(`#${id}-table tbody`);
      if (!body) continue;
      for (const sample of due.slice(-tableRows)) {
        body.prepend(tableRow([HelixCharts.local(sample.at), ...valuesOf(sample).map(cell)]));
      }
      while (body.rows.length > tableRows) body.deleteRow(-1);
    }
  };
  const describe = (chart, summary) => {
    document.getElementById(`${chart.id}-summary`).textContent = summary;
    const title = chart.getAttribute("aria-label").split(". ")[0];
    chart.setAttribute("aria-label", `${title}. ${summary}`);
  };

  const bars = (id, nodes, valueOf, textOf) => {
    const chart = document.getElementById(id);
    const figure = chart && HelixCharts.figure(chart);
    if (!figure) return;
    const names = figure.data[0].y;
    figure.data[0].x = names.map((name) => valueOf(nodes[name]));
    figure.data[0].text = names.map((name) => textOf(nodes[name]));
    HelixCharts.draw(chart, figure);
    fill(id, names.map((name) => [name, percent(valueOf(nodes[name])), textOf(nodes[name])]));
    const highest = names.reduce((best, name) => (
      (valueOf(nodes[name]) ?? -1) > (valueOf(nodes[best]) ?? -1) ? name : best), names[0]);
    const value = valueOf(nodes[highest]);
    describe(chart, known(value) ? HelixTexts.fill(gettext("Highest: %(node)s, %(share)s%."), { node: highest, share: Math.round(value * 100) }) : gettext("No node is reporting."));
  };
  const flowShares = (nodes) => {
    const chart = document.getElementById("flow");
    const figure = chart && HelixCharts.figure(chart);
    if (!figure) return;
    const [measured, planned] = figure.data;
    measured.x = measured.y.map((name) => nodes[name]?.flow_share ?? null);
    HelixCharts.draw(chart, figure);
    fill("flow", measured.y.map((name, index) => [name, percent(measured.x[index]), percent(planned.x[index])]));
    const passed = measured.y.map((_, index) => index).filter((index) => known(measured.x[index]));
    const gap = (index) => Math.abs(measured.x[index] - planned.x[index]);
    const widest = passed.reduce((best, index) => (gap(index) > gap(best) ? index : best), passed[0]);
    describe(chart, passed.length
      ? HelixTexts.fill(gettext("Farthest from the plan: %(node)s, %(measured)s measured, %(planned)s planned."), { node: measured.y[widest], measured: percent(measured.x[widest]), planned: percent(planned.x[widest]) })
      : gettext("No token passed in the last minute."));
  };
  const rows = (nodes) => {
    for (const row of document.querySelectorAll("#monitor-nodes [data-node]")) {
      const node = nodes[row.dataset.node];
      const put = (name, text) => { row.querySelector(`[data-cell="${name}"]`).textContent = text; };
      put("busy", percent(node?.busy_ratio));
      put("tokens", rate(node?.tokens_per_s));
      put("flow", percent(node?.flow_share));
      put("sequences", count(node?.sequences));
      put("kv", known(node?.kv_total_pages) ? HelixTexts.fill(gettext("%(kv_used_pages)s of %(kv_total_pages)s"), { kv_used_pages: count(node.kv_used_pages), kv_total_pages: count(node.kv_total_pages) }) : unknown);
    }
  };
  const tiles = (sample) => {
    show("output", rate(sample.output_tokens_per_s));
    show("prompt", rate(sample.prompt_tokens_per_s));
    show("ttft-p50", latency(sample.ttft_p50_s));
    show("ttft-p95", latency(sample.ttft_p95_s));
    show("itl-p50", latency(sample.itl_p50_s));
    show("itl-p95", latency(sample.itl_p95_s));
    show("tpot-p50", latency(sample.tpot_p50_s));
    show("tpot-p95", latency(sample.tpot_p95_s));
    show("e2e-p50", latency(sample.e2e_p50_s));
    show("e2e-p95", latency(sample.e2e_p95_s));
    show("running", count(sample.running));
    show("waiting", count(sample.waiting));
    if (!sample.nodes) return; // left out of this sample
    const heard = Object.values(sample.nodes).filter((node) => node.kv_total_pages);
    const total = heard.reduce((sum, node) => sum + node.kv_total_pages, 0);
    show("kv", percent(total ? heard.reduce((sum, node) => sum + node.kv_used_pages, 0) / total : null));
  };
  const showNow = (sample) => {
    tiles(sample);
    if (!sample.nodes) return;
    rows(sample.nodes);
    bars("busy", sample.nodes, (node) => node?.busy_ratio ?? null,
      (node) => (known(node?.busy_ratio) ? `${Math.round(node.busy_ratio * 100)}%` : gettext("no report")));
    bars("kv", sample.nodes, pagesUsed,
      (node) => (known(node?.kv_total_pages) ? HelixTexts.fill(gettext("%(kv_used_pages)s of %(kv_total_pages)s pages"), { kv_used_pages: count(node.kv_used_pages), kv_total_pages: count(node.kv_total_pages) }) : gettext("no report")));
    flowShares(sample.nodes);
  };

  // What is worked out from many numbers, in the reader's language: charts are asked for while samples
  // come, the finding while the numbers that it comes from move. It is of rates over the last 12 s;
  // links may change without any of these numbers, so it is asked for once a minute in any case.
  const asked = { finding: performance.now(), charts: performance.now() };
  let gist = null;
  let changedAt = performance.now();
  let nodesHeard = {};
  const twentieths = (value) => (known(value) ? Math.round(value * 20) : null);
  const gistOf = (sample) => JSON.stringify([
    sample.running > 0, sample.waiting,
    Object.values(nodesHeard).map((node) => [node.busy_ratio, pagesUsed(node), node.kv_promised_ratio].map(twentieths)),
  ]);
  const findWhenChanged = (sample) => {
    const now = performance.now();
    nodesHeard = sample.nodes ?? nodesHeard; // left out of some samples
    const newest = gistOf(sample);
    if (newest !== gist) [gist, changedAt] = [newest, now];
    const since = now - asked.finding;
    if (since < 4000 || (now - changedAt > 12000 && since < 60000)) return;
    asked.finding = now;
    find();
  };
  const redrawWhenDue = () => {
    if (performance.now() - asked.charts < 15000) return;
    asked.charts = performance.now();
    ["heat", "flow-measured", "flow-load"].forEach(redraw);
  };
  const get = async (url) => {
    const response = await fetch(url, { headers: { Accept: "application/json" } }).catch(() => null);
    return response?.ok ? response.json() : null;
  };
  const LIMITS = {
    "silent node": gettext("silent node"), "slow node": gettext("slow node"), "KV cache": gettext("KV cache"),
    "host CPU": gettext("host CPU"), compute: gettext("compute"), link: gettext("link"), admission: gettext("admission"),
    nothing: gettext("nothing"), unknown: gettext("unknown"),
  };
  const showFinding = (finding) => {
    const words = { ...finding, limit: LIMITS[finding.limit] };
    for (const element of document.querySelectorAll("[data-finding]")) {
      const text = words[element.dataset.finding];
      if (element.textContent !== text) element.textContent = text; // said aloud only when it changes
    }
    const badge = document.querySelector('[data-finding="limit"]');
    if (badge) badge.className = `badge ${{ nothing: "good", unknown: "" }[finding.limit] ?? "warn"}`;
  };
  const find = async () => {
    const finding = await get(`/api/v1/clusters/${cluster}/bottleneck/`);
    if (finding) showFinding(finding);
  };
  const redraw = async (id) => {
    const chart = document.getElementById(id);
    const found = chart && await get(`/monitor/chart/${id}/?cluster=${cluster}&range=${range}&kind=${kind}`);
    if (!found) return;
    HelixCharts.draw(chart, found.figure);
    fill(id, found.rows);
    describe(chart, found.summary);
  };

  const silence = document.getElementById("silence");
  let heardAt = age === "" ? null : performance.now() - Number(age) * 1000;
  // After a pause the stream replays what was missed: thousands of samples are drawn once a frame.
  let waiting = [];
  const flush = () => {
    const samples = waiting;
    waiting = [];
    extend(samples);
    const newest = samples[samples.length - 1];
    // A coordinator that has not followed to the present deployment speaks of other nodes.
    showNow(newest.generation === Number(generation) ? newest : { ...newest, nodes: {} });
    if (document.querySelector("[data-finding]")) findWhenChanged(newest);
  };
  document.addEventListener("helix:metrics", (event) => {
    // The first report ever, another deployment, and simulated traffic need another page.
    const isOther = event.detail.simulated !== (simulated === "true");
    if (heardAt === null || isOther || event.detail.generation > Number(generation)) { location.reload(); return; }
    heardAt = performance.now();
    if (silence) silence.hidden = true;
    waiting.push(event.detail);
    if (waiting.length === 1) requestAnimationFrame(flush);
    redrawWhenDue();
  });
  setInterval(() => {
    if (heardAt === null) return;
    const silent = (performance.now() - heardAt) / 1000;
    show("age", ageText(silent));
    if (silent > Number(silentAfter) && silence?.hidden) {
      silence.hidden = false;
      showNow({ nodes: {} });
      for (const id of Object.keys(lines)) {
        const chart = document.getElementById(id);
        if (chart) describe(chart, gettext("Nothing is measured now."));
      }
    }
  }, 1000);
})();
