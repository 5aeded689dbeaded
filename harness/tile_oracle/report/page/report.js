// Sorts and filters the tables of report.html and opens problems; the page is readable without this script.
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
  const chosen = [...filter.querySelectorAll("select")];
  const rows = [...document.getElementById(input.dataset.table).tBodies[0].rows];
  const whole = row => [row, ...row.querySelectorAll("[title]")].map(one => one.title + " " + (one === row ? one.textContent : "")).join(" ");
  const texts = rows.map(row => whole(row).toLowerCase());
  const marks = rows.map(row => new Set(row.cells[0].dataset.g?.split(" ")));
  filter.hidden = false;
  filter.addEventListener("input", () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = chosen.map(one => one.value).filter(Boolean);
    let shown = 0;
    rows.forEach((row, i) => {
      row.hidden = !(words.every(word => texts[i].includes(word)) && wanted.every(one => marks[i].has(one)));
      shown += !row.hidden;
    });
    output.textContent = words.length + wanted.length ?
      `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows` : "";
  });
}
// On a phone only the first group is open; paper shows all of them.
const groups = [...document.querySelectorAll("details.group")];
if (matchMedia("(max-width: 640px)").matches) groups.slice(1).forEach(one => one.open = false);
document.querySelector("nav").addEventListener("click", event => {
  const group = groups.find(one => "#" + one.id === event.target.getAttribute("href"));
  if (group) group.open = true;
});
addEventListener("beforeprint", () => groups.forEach(one => one.open = true));
const drill = document.getElementById("drill"), data = JSON.parse(document.getElementById("drill-data").textContent);
// A term's explanation in the legend, on hover where it stands.
const explain = one => one.title = document.getElementById(one.getAttribute("aria-describedby")).textContent;
document.querySelectorAll("[aria-describedby^=term-]").forEach(explain);
// Opens the kernels of a problem, with the texts and columns that drill_down.py gives.
const made = (name, text, css) => {
  const one = document.createElement(name);
  if (text !== undefined && text !== null) one.textContent = text;
  if (css) one.className = css;
  return one;
};
const breakable = text => {
  const shown = document.createDocumentFragment();
  text.split(text.includes("=") ? /(?=\.)/ : /(?<=_)/).forEach((part, i) => {
    if (i) shown.append(document.createElement("wbr"));
    shown.append(part);
  });
  return shown;
};
const tableOf = (caption, columns, rows) => {
  const table = made("table"), head = table.createTHead().insertRow(), body = table.createTBody();
  table.setAttribute("aria-label", caption);
  for (const [name, css, hint, term] of columns) {
    const cell = made("th", null, css);
    const shown = term ? made("a", name, "term") : document.createTextNode(name);
    if (name.length < 10) cell.classList.add("nowrap");
    cell.scope = "col";
    if (term) {
      shown.href = "#" + term;
      shown.setAttribute("aria-describedby", term);
      explain(shown);
      shown.addEventListener("click", () => drill.close());
    }
    cell.append(shown);
    if (hint && !term) cell.title = hint;
    head.append(cell);
  }
  for (const cells of rows) {
    const row = body.insertRow();
    cells.forEach((content, i) => {
      const cell = made(i ? "td" : "th", null, columns[i][1]);
      if (!i) cell.scope = "row";
      cell.append(...[content].flat());
      row.append(cell);
    });
  }
  const scroll = made("div", null, "scroll");
  scroll.tabIndex = 0;
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", caption);
  scroll.append(table);
  return scroll;
};
const smallTable = (caption, columns, rows) => {
  const part = made("div"), scroll = tableOf(caption, columns, rows);
  scroll.classList.add("fit");
  part.append(made("h3", caption), scroll);
  return part;
};
// A time as a dot with its interval, between the oracle's and twice that; slower ones have none.
const dot = (ratio, interval) => {
  const around = parseFloat(interval.replace(/[^0-9.]/g, "")) / 100 || 0, at = value => 4 + 72 * Math.max(0, Math.min(1, value - 1));
  if (!(ratio < 2)) return [];
  const shape = (name, css, values) => {
    const one = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(values)) one.setAttribute(key, value);
    one.classList.add(css);
    return one;
  };
  const drawn = shape("svg", "interval-dot", {viewBox: "0 0 80 10", "aria-hidden": "true"});
  drawn.append(
    shape("line", "axis", {x1: 4, x2: 4, y1: 0, y2: 10}),
    shape("line", "span", {x1: at(ratio * (1 - around)), x2: at(ratio * (1 + around)), y1: 5, y2: 5}),
    shape("circle", "own", {cx: at(ratio), cy: 5, r: 2.5}));
  return [drawn];
};
const column = heading => data.columns.findIndex(one => one[0] === heading) - 1;
const kernelsOf = it => tableOf(`Kernels of ${it.id}`, data.columns, it.rows.map(([kernel, ...rest]) => {
  const texts = rest.slice(0, data.columns.length - data.facts[kernel].length - 1), [tags, note] = rest.slice(texts.length);
  const [shown, whole] = [data.kernels[kernel]].flat(), called = made("span");
  called.append(breakable(shown));
  if (whole) called.title = whole;
  const name = [called], status = [texts.pop()];
  for (const tag of (tags ?? "").split(" ").filter(Boolean)) name.push(" ", made("span", tag, "tag"));
  const ratio = column("/ oracle"), drawn = dot(parseFloat(texts[ratio]), texts[column("95 %")] ?? "");
  if (drawn.length) texts[ratio] = [...drawn, texts[ratio]];
  if (note) status.push(document.createElement("br"), made("span", note, "note"));
  return [name, ...texts, status, ...data.facts[kernel]];
}));
let shown = -1;
// The problem before or after the shown one, in the order of the table's rows.
const beside = step => {
  const rows = [...document.querySelectorAll("#all-problems tbody tr:not([hidden]) [data-p]")];
  const places = rows.map(one => +one.dataset.p), at = places.indexOf(shown);
  return at < 0 ? undefined : places[at + step];
};
const openProblem = place => {
  const it = data.problems[place], body = document.getElementById("drill-body"), facts = made("dl");
  shown = place;
  document.getElementById("drill-title").replaceChildren(it.title);
  for (const [name, text] of it.facts) facts.append(made("dt", name), made("dd", text));
  body.replaceChildren(facts);
  const tables = made("div", null, "side-by-side");
  tables.append(...it.tables.map(one => smallTable(...one)));
  body.append(tables, made("h3", "Kernels, fastest first"), kernelsOf(it), made("p", it.left, "note"));
  for (const button of drill.querySelectorAll("[data-go]"))
    button.disabled = button.dataset.go !== "0" && beside(+button.dataset.go) === undefined;
  if (!drill.open) drill.showModal();
  document.getElementById("drill-title").focus();
  history.replaceState(null, "", "#open=" + encodeURIComponent(it.id));
};
drill.addEventListener("close", () => history.replaceState(null, "", "#" + (shown < 0 ? "" : "problems")));
drill.addEventListener("click", event => {
  const button = event.target.closest("[data-go]");
  if (event.target === drill || button?.dataset.go === "0") drill.close();
  else if (button) openProblem(beside(+button.dataset.go));
});
for (const cell of document.querySelectorAll("[data-p]")) {
  const button = made("button", null, "opens");
  button.type = "button";
  button.append(...cell.childNodes);
  button.setAttribute("aria-haspopup", "dialog");
  cell.replaceChildren(button);
  cell.parentNode.classList.add("opens-row");
}
document.addEventListener("click", event => {
  const row = event.target.closest("tr.opens-row");
  if (row && !getSelection().toString()) openProblem(+row.querySelector("[data-p]").dataset.p);
});
// Copies a command.
for (const place of document.querySelectorAll(".command")) {
  const button = made("button", "Copy");
  button.type = "button";
  button.setAttribute("aria-label", "Copy the command");
  const text = place.querySelector("code").textContent;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(place.querySelector("code"));
      button.textContent = "Selected";
    }
    setTimeout(() => button.textContent = "Copy", 2000);
  });
  place.append(button);
}
// An address names a problem, whose kernels open, or a kind, whose problems are shown.
const openNamed = () => {
  const address = decodeURIComponent(location.hash.slice(1));
  const place = data.problems.findIndex(it => `open=${it.id}` === address);
  if (place >= 0) openProblem(place);
  const option = [...document.querySelectorAll("option[data-address]")].find(one => one.dataset.address === address);
  if (!option) return;
  option.closest("details").open = true;
  option.closest("select").value = option.value;
  option.closest(".filter").dispatchEvent(new Event("input"));
};
addEventListener("hashchange", openNamed);
openNamed();
