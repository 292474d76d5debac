// The console beside its markup: Ctrl+Enter, what was asked before, what a person keeps, the plot.
// Questions stay in the storage of this browser, for this address; the server never sees the lists.
"use strict";

const MOST_ASKED = 30;
const MOST_LINES = 20;
const DASHES = [[], [10, 4], [3, 3], [10, 3, 3, 3], [18, 4], [6, 6], [2, 6]]; // lines differ without colour
const question = document.getElementById("sql");

function stored(name) {
  try {
    const found = JSON.parse(localStorage.getItem(`genenv-${name}`) ?? "[]");
    return Array.isArray(found) ? found.filter((one) => typeof one?.sql === "string") : [];
  } catch {
    return [];
  }
}

function store(name, list) {
  try {
    localStorage.setItem(`genenv-${name}`, JSON.stringify(list));
  } catch {
    // A browser that stores nothing, or is full, still asks.
  }
  show(name);
}

function show(name) {
  const part = document.getElementById(name);
  const list = stored(name);
  part.hidden = list.length === 0;
  part.querySelector("ul").replaceChildren(
    ...list.map((one, index) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      link.href = `/sql?${new URLSearchParams({ q: one.sql })}`;
      link.textContent = one.title ?? one.sql;
      link.title = one.sql;
      item.append(link);
      if (name === "kept") {
        const away = document.createElement("button");
        away.className = "plain";
        away.textContent = "remove";
        away.setAttribute("aria-label", `remove ${one.title}`);
        away.addEventListener("click", () => store(name, list.toSpliced(index, 1)));
        item.append(" ", away);
      }
      return item;
    }),
  );
}

function withoutTwin(list, sql) {
  return list.filter((one) => one.sql.trim() !== sql.trim());
}

question.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    question.form.requestSubmit();
  }
});

if (document.getElementById("answered")) {
  const sql = question.value;
  store("asked", [{ sql }, ...withoutTwin(stored("asked"), sql)].slice(0, MOST_ASKED));
}
show("asked");
show("kept");
document.querySelector("#asked button").addEventListener("click", () => store("asked", []));

const keep = document.getElementById("keep");
keep.hidden = false;
keep.addEventListener("submit", (event) => {
  event.preventDefault();
  const sql = question.value;
  const title = keep.elements.title.value.trim();
  if (!sql.trim() || !title) return;
  store("kept", [...withoutTwin(stored("kept"), sql), { title, sql }]);
  keep.reset();
});

// The plot draws rows as they are: nothing is summed, and rows with one place stay apart.
function seriesOf(data, x, y, by) {
  const at = Object.fromEntries(data.columns.map((name, index) => [name, index]));
  const across = data.numeric.includes(x);
  const names = across ? [] : [...new Set(data.rows.map((row) => row[at[x]]))];
  const place = (row) => (across ? row[at[x]] : names.indexOf(row[at[x]]));
  const rows = data.rows.filter((row) => place(row) !== null).sort((a, b) => place(a) - place(b));
  const lines = by ? [...new Set(rows.map((row) => String(row[at[by]])))] : [y];
  const shown = lines.slice(0, MOST_LINES);
  return {
    names,
    lines: shown,
    left: lines.length - shown.length,
    data: [
      rows.map(place),
      ...shown.map((line) => rows.map((row) => (!by || String(row[at[by]]) === line ? row[at[y]] : null))),
    ],
  };
}

// A little more than the places there are: of rows with one place at the edge, a chart that ends
// there draws the first alone.
function wide(_, low, high) {
  const more = (high - low) / 50 || 1;
  return [low - more, high + more];
}

function plotting(part) {
  const data = JSON.parse(part.querySelector("script").textContent);
  const [x, y, by] = ["x", "y", "by"].map((name) => part.querySelector(`[name=${name}]`));
  const points = part.querySelector("[name=points]");
  const place = part.querySelector(".plot");
  const options = (select, names) => select.replaceChildren(...names.map((name) => new Option(name || "no column", name)));
  options(x, data.columns);
  options(y, data.numeric);
  options(by, ["", ...data.columns]);
  x.value = data.columns.includes("epoch") ? "epoch" : data.columns[0];
  y.value = data.numeric.find((name) => name !== x.value) ?? data.numeric[0];
  const texts = data.columns.filter((name) => name !== x.value && !data.numeric.includes(name));
  const few = texts.find((name) => {
    const values = new Set(data.rows.map((row) => row[data.columns.indexOf(name)]));
    return values.size > 1 && values.size <= 8;
  });
  by.value = few ?? "";
  points.checked = !data.numeric.includes(x.value); // a line between names would say nothing
  let drawn = null;

  function draw() {
    drawn?.destroy();
    const made = seriesOf(data, x.value, y.value, by.value);
    const axis = { stroke: tone("soft"), grid: { stroke: tone("grid"), width: 1 }, ticks: { show: false } };
    const named = made.names.length
      ? { values: (_, splits) => splits.map((at) => made.names[at] ?? ""), incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500] }
      : {};
    drawn = new uPlot(
      {
        width: place.clientWidth,
        height: 320,
        padding: [8, 28, 0, 0],
        scales: { x: { time: false, range: wide } },
        axes: [{ ...axis, ...named, size: 30, label: x.value, labelSize: 18 }, { ...axis, size: 60 }],
        series: [
          { label: x.value, value: (_, at) => (at === null ? "" : (made.names[at] ?? String(at))) },
          ...made.lines.map((line, index) => ({
            label: line,
            stroke: tone(`s${index % 7}`),
            dash: DASHES[index % DASHES.length],
            width: points.checked ? 0 : 2,
            spanGaps: true,
            points: { show: points.checked || data.rows.length < 60, size: 6, fill: tone(`s${index % 7}`) },
          })),
        ],
      },
      made.data,
      place,
    );
    part.querySelector("#plotted").textContent = made.left ? `${made.left} more lines are not drawn` : "";
  }

  for (const control of [x, y, by, points]) control.addEventListener("change", draw);
  part.addEventListener("toggle", () => part.open && draw());
  new ResizeObserver(() => drawn?.setSize({ width: place.clientWidth, height: 320 })).observe(place);
  part.hidden = false;
}

const part = document.getElementById("plotting");
if (part) plotting(part);
