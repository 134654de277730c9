// The list of nodes: how many are chosen, ticks that outlive a swap, and meters that follow the samples.
"use strict";

(() => {
  const form = document.getElementById("bulk");
  if (!form) return;
  const boxes = () => [...form.querySelectorAll("input[name=node]")];
  const chosen = new Set();
  const everything = form.querySelector("[name=all]");
  const told = form.querySelector("[data-chosen]");
  const count = () => {
    if (!told) return; // nothing to choose for who may only look
    told.textContent = everything?.checked
      ? gettext("all chosen") : HelixTexts.fill(gettext("%(count)s chosen"), { count: chosen.size });
    const whole = form.querySelector("[data-choose-all]");
    const on = boxes().filter((box) => box.checked).length;
    whole.checked = on > 0 && on === boxes().length;
    whole.indeterminate = on > 0 && on < boxes().length;
  };
  form.addEventListener("change", (event) => {
    if (event.target.matches("[data-choose-all]")) {
      for (const box of boxes()) box.checked = event.target.checked;
    }
    chosen.clear();
    for (const box of boxes()) if (box.checked) chosen.add(box.value);
    count();
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const box of boxes()) box.checked = chosen.has(box.value);
    showAll();
    count();
  });

  // The newest sample of each cluster, to be shown again in rows that were swapped.
  const latest = new Map();
  const percent = (ratio) => `${(ratio * 100).toFixed(1)} %`;
  const set = (row, name, ratio) => {
    const meter = row.querySelector(`[data-meter=${name}]`);
    if (!meter || ratio === null || ratio === undefined) return;
    meter.value = ratio;
    row.querySelector(`[data-text=${name}]`).textContent = percent(ratio);
  };
  const show = (cluster, nodes) => {
    for (const row of form.querySelectorAll(`tr[data-cluster="${cluster}"]`)) {
      const node = nodes[row.dataset.node];
      if (!node) continue;
      set(row, "busy", node.busy_ratio);
      set(row, "kv", node.kv_total_pages ? node.kv_used_pages / node.kv_total_pages : null);
    }
  };
  const showAll = () => { for (const [cluster, nodes] of latest) show(cluster, nodes); };
  document.addEventListener("helix:metrics", (event) => {
    if (!event.detail.nodes) return; // of many nodes not every sample speaks
    latest.set(event.detail.cluster, event.detail.nodes);
    show(event.detail.cluster, event.detail.nodes);
  });
  count();
})();
