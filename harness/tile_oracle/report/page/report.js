// Sorts and filters the tables of report.html, which is complete without this script.
"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, i) => row.cells[i].dataset.v ?? row.cells[i].textContent;
  heads.forEach((head, i) => head.querySelector("button").addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") !== "ascending";
    const number = head.classList.contains("num");
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...body.rows];
    rows.sort((a, b) => {
      const x = value(a, i), y = value(b, i);
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = number ? x - y : x.localeCompare(y, "en", { numeric: true });
      return up ? order : -order;
    });
    body.append(...rows);
  }));
}
for (const filter of document.querySelectorAll(".filter")) {
  const input = filter.querySelector("input"), output = filter.querySelector("output");
  const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
  const texts = rows.map(row => row.textContent.toLowerCase());
  filter.hidden = false;
  input.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !words.every(word => texts[i].includes(word));
      shown += !row.hidden;
    });
    output.textContent = words.length ? `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows` : "";
  });
}
