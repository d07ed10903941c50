// Sort a table by the header that is clicked: first ascending, then descending. What is absent stays last.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const headers = [...table.tHead.rows[0].cells];
  table.tHead.addEventListener("click", (event) => {
    const header = event.target.closest("th");
    if (header === null) return;
    const sign = header.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    const numeric = header.classList.contains("number");
    const compare = (a, b) => {
      const [one, other] = [a, b].map((row) => row.cells[header.cellIndex].dataset.value);
      if (one === "" || other === "") return (one === "") - (other === "");
      return sign * (numeric ? one - other : one.localeCompare(other, "en", { numeric: true }));
    };
    table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
    for (const each of headers) each.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", sign === 1 ? "ascending" : "descending");
  });
}
