// The timeline of a deployment's page: read anew when a node enters a phase, and its bars grow until
// the deployment has settled. The rest of the page is swapped by htmx.
"use strict";

(() => {
  const url = document.currentScript.dataset.timeline;
  const chart = document.getElementById("timeline");
  const settled = () => !["deploying", "stopping"].includes(
    document.getElementById("deployment-status").dataset.status,
  );
  let loading = false;
  let again = false;

  const load = async () => {
    if (loading) { again = true; return; }
    loading = true;
    again = false;
    try {
      const response = await fetch(url, { headers: { Accept: "application/json" } });
      if (!response.ok) return;
      const { data, layout, summary, rows } = await response.json();
      await HelixCharts.draw(chart, { data, layout });
      document.getElementById("timeline-summary").textContent = summary;
      const body = document.querySelector("#timeline-table tbody");
      body.replaceChildren();
      for (const row of rows) {
        const line = body.insertRow();
        for (const cell of row) line.insertCell().textContent = cell;
      }
    } finally {
      loading = false;
      if (again) load();
    }
  };
  document.addEventListener("helix:node-phase", load);
  document.addEventListener("helix:deployment", load);
  setInterval(() => { if (!settled() && !document.hidden) load(); }, 1000);
})();
