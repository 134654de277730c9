// Forms with rows: adds a row, and removes one. Without this script each form has one blank row.
"use strict";

(() => {
  const rowsOf = (box) => [...box.querySelectorAll("[data-row]")];
  const nameRows = (box) => {
    for (const [index, row] of rowsOf(box).entries()) {
      row.setAttribute("aria-label", HelixTexts.fill(gettext("Row %(number)s"), { number: index + 1 }));
    }
  };
  const blank = (row) => {
    for (const field of row.querySelectorAll("input, select")) {
      field.value = "";
      field.removeAttribute("aria-invalid");
    }
    for (const list of row.querySelectorAll(".errorlist")) list.remove();
  };
  const focus = (row) => row.querySelector("input, select").focus();
  let added = 0; // ids of rows that the server rendered begin with a number of their own
  const add = (box) => {
    const last = rowsOf(box).at(-1);
    const row = last.cloneNode(true);
    blank(row);
    added += 1;
    for (const part of row.querySelectorAll("[id], [for]")) {
      for (const name of ["id", "for", "aria-describedby"]) {
        const value = part.getAttribute(name);
        if (value) part.setAttribute(name, value.replace(/^id_[^_]+_/, `id_added${added}_`));
      }
    }
    last.after(row);
    nameRows(box);
    focus(row);
  };
  const remove = (row) => {
    const box = row.closest("[data-rows]");
    const rows = rowsOf(box);
    const index = rows.indexOf(row);
    if (rows.length === 1) blank(row);
    else row.remove();
    nameRows(box);
    focus(rowsOf(box)[Math.max(0, index - 1)]);
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-add-row], [data-remove-row]");
    if (button?.matches("[data-add-row]")) add(button.closest("[data-rows]"));
    else if (button) remove(button.closest("[data-row]"));
  });
})();
