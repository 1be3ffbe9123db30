"use strict";
// Tables sort by a click on a column's head; missing values stay at the end. Without scripts they are plain tables.
const key = (row, column) => {
  const cell = row.cells[column];
  const text = cell.dataset.sort ?? cell.textContent;
  return text === "—" || text === "" ? null : text;
};
const compare = (a, b) => {
  const difference = Number(a) - Number(b);
  if (!Number.isNaN(difference)) return difference;
  return a === b ? 0 : a.localeCompare(b, "en", { numeric: true });
};
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const sign = head.ariaSort === "ascending" ? -1 : 1;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
      const rows = [...body.rows].map((row) => [key(row, column), row]);
      rows.sort(([a], [b]) => (a === null) - (b === null) || (a === null ? 0 : sign * compare(a, b)));
      body.append(...rows.map(([, row]) => row));
    });
  });
}
addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((part) => (part.open = true)));
