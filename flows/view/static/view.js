// The curves of a page.
"use strict";

const PLOT_HEIGHT = 190;
const MOST_MARKS = 40; // epochs; with more of them the marks would hide the lines
const BESIDE = [2, 4]; // dashes of a second, fainter line
const APART = 4; // pixels between the bars of two lines at one epoch
const style = getComputedStyle(document.documentElement);
const tone = (name) => style.getPropertyValue(`--${name}`).trim();
const known = (values) => values.filter((value) => value !== null && value !== undefined);

function written(value, share) {
  if (value === null || value === undefined) return "";
  return share || Math.abs(value) < 10 ? value.toFixed(3) : value.toFixed(1);
}

// What a figure draws: for each line its values, those beside it, and the ends of its intervals.
function linesOf(figure, data) {
  const { curve, beside } = figure.dataset;
  const column = (name, line) => data.values[name] && data.values[name][line];
  return data.lines.map((line, index) => ({
    look: data.looks[index],
    values: data.values[curve][line],
    beside: (data.bars && beside && column(beside, line)) || null,
    low: column(`${curve}_low`, line) || null,
    high: column(`${curve}_high`, line) || null,
  }));
}

// The ends of the y axis: all values, and their intervals as far as these leave the lines readable.
function rangeOf(figure, lines, data) {
  if (figure.dataset.whole === "1") return [0, 1];
  const drawn = known(lines.flatMap((line) => [...line.values, ...(line.beside || [])]));
  const ends = known(lines.flatMap((line) => [...(line.low || []), ...(line.high || [])]));
  const low = Math.min(...drawn);
  const high = Math.max(...drawn);
  const room = 1.5 * Math.max(high - low, 0.05 * Math.abs(high), 1e-6);
  const bottom = Math.max(low - room, Math.min(low, ...ends));
  const top = Math.min(high + room, Math.max(high, ...ends));
  const share = figure.dataset.share === "1";
  const least = share ? 0.02 : 0.1 * Math.max(Math.abs(low), Math.abs(high), 1e-3); // of a flat line
  const edge = Math.max(0.06 * (top - bottom), (least - (top - bottom)) / 2);
  return share ? [Math.max(0, bottom - edge), Math.min(1, top + edge)] : [bottom - edge, top + edge];
}

function drawBand(plot, data) {
  if (data.alpha === null) return;
  const { ctx, bbox } = plot;
  const at = (value) => plot.valToPos(Math.min(1, Math.max(0, value)), "y", true);
  ctx.save();
  ctx.fillStyle = tone("band");
  ctx.fillRect(bbox.left, at(data.alpha + data.k_min), bbox.width, at(data.alpha - data.k_min) - at(data.alpha + data.k_min));
  ctx.restore();
  drawLevel(plot, data.alpha, [5, 4]);
}

// A line across the plot: alpha, or the start.
function drawLevel(plot, value, dash, tint = "soft") {
  const { ctx, bbox } = plot;
  const y = plot.valToPos(value, "y", true);
  ctx.save();
  ctx.strokeStyle = tone(tint);
  ctx.lineWidth = 1.2 * devicePixelRatio;
  ctx.setLineDash(dash.map((length) => length * devicePixelRatio));
  ctx.beginPath();
  ctx.moveTo(bbox.left, y);
  ctx.lineTo(bbox.left + bbox.width, y);
  ctx.stroke();
  ctx.restore();
}

function drawBars(plot, lines, epochs) {
  const { ctx, bbox } = plot;
  const within = (y) => Math.min(bbox.top + bbox.height, Math.max(bbox.top, y));
  ctx.save();
  ctx.globalAlpha = 0.45;
  ctx.lineWidth = 3 * devicePixelRatio;
  lines.forEach((line, index) => {
    if (!line.low) return;
    const aside = (index - (lines.length - 1) / 2) * APART * devicePixelRatio;
    ctx.strokeStyle = tone(line.look.colour);
    epochs.forEach((epoch, place) => {
      if (line.low[place] === null || line.high[place] === null) return;
      const x = plot.valToPos(epoch, "x", true) + aside;
      ctx.beginPath();
      ctx.moveTo(x, within(plot.valToPos(line.low[place], "y", true)));
      ctx.lineTo(x, within(plot.valToPos(line.high[place], "y", true)));
      ctx.stroke();
    });
  });
  ctx.restore();
}

function drawMarks(plot, lines, epochs) {
  const { ctx } = plot;
  for (const line of lines) {
    const mark = new Path2D(line.look.mark);
    const alone = known(line.values).length === 1;
    if (epochs.length > MOST_MARKS && !alone) continue;
    epochs.forEach((epoch, place) => {
      if (line.values[place] === null) return;
      ctx.save();
      ctx.translate(plot.valToPos(epoch, "x", true), plot.valToPos(line.values[place], "y", true));
      ctx.scale(devicePixelRatio, devicePixelRatio);
      ctx.fillStyle = tone(line.look.colour);
      ctx.fill(mark);
      ctx.restore();
    });
  }
}

// An interval in words: where bars are of the change since the start, the change.
function interval(figure, line, at, share) {
  const ends = [line.low[at], line.high[at]];
  if (figure.dataset.change !== "1") return `[${ends.map((end) => written(end, share)).join(", ")}]`;
  const signed = (value) => `${value < 0 ? "−" : "+"}${written(Math.abs(value), share)}`;
  return `(change ${ends.map((end) => signed(end - line.values[0])).join(" to ")})`;
}

// The numbers under a plot: those of the epoch below the pointer, else each line's newest ones.
function read(figure, lines, epochs, chosen) {
  const share = figure.dataset.share === "1";
  const last = (values) => values.reduce((at, value, place) => (value === null ? at : place), 0);
  const newest = Math.max(...lines.map((line) => last(line.values)));
  figure.querySelector(".readout b").textContent = `epoch ${epochs[chosen ?? newest]}`;
  for (const place of figure.querySelectorAll(".readout [data-line]")) {
    const line = lines[Number(place.dataset.line)];
    const beside = "beside" in place.dataset;
    const values = beside ? line.beside : line.values;
    const at = chosen ?? last(values);
    const ends = !beside && line.low && line.low[at] !== null;
    const words = [written(values[at], share) || "–"];
    if (ends) words.push(interval(figure, line, at, share));
    if (chosen === null && at < newest && values[at] !== null) words.push(`in epoch ${epochs[at]}`);
    place.querySelector("output").textContent = words.join(" ");
  }
}

function drawn(figure, data) {
  const place = figure.querySelector(".plot");
  const lines = linesOf(figure, data);
  const faint = lines.filter((line) => line.beside);
  const range = rangeOf(figure, lines, data);
  const one = (line) => ({ stroke: tone(line.look.colour), spanGaps: true, points: { show: false } });
  // Solid lines are below the dashed ones, whose gaps show what they lie on.
  const order = [...lines].sort((a, b) => Math.sign(a.look.dash.length) - Math.sign(b.look.dash.length));
  const series = [
    ...faint.map((line) => ({ ...one(line), width: 1.5, dash: BESIDE, alpha: 0.8 })),
    ...order.map((line) => ({ ...one(line), width: 2, dash: line.look.dash })),
  ];
  const start = figure.dataset.start === "1" && data.epochs[0] === 0 ? lines[0].values[0] : null;
  const marks = {
    hooks: {
      drawClear: (plot) => {
        if (figure.dataset.band === "1") drawBand(plot, data);
      },
      drawAxes: (plot) => {
        if (start !== null) drawLevel(plot, start, [2, 3], "ink");
        drawBars(plot, lines, data.epochs);
      },
      draw: (plot) => drawMarks(plot, order, data.epochs),
      setCursor: (plot) => read(figure, lines, data.epochs, plot.cursor.idx ?? null),
    },
  };
  const axis = { stroke: tone("soft"), grid: { stroke: tone("grid"), width: 1 }, ticks: { show: false } };
  const options = {
    width: place.clientWidth,
    height: PLOT_HEIGHT,
    scales: { x: { time: false }, y: { range: () => range } },
    axes: [{ ...axis, size: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, { ...axis, size: 48 }],
    series: [{ label: "epoch" }, ...series],
    cursor: { points: { show: false }, drag: { x: false, y: false } },
    legend: { show: false },
    plugins: [marks],
  };
  read(figure, lines, data.epochs, null);
  const rows = [...faint.map((line) => line.beside), ...order.map((line) => line.values)];
  return new uPlot(options, [data.epochs, ...rows], place);
}

for (const group of document.querySelectorAll("[data-curves]")) {
  const data = JSON.parse(group.querySelector("script.curves").textContent);
  const plots = [...group.querySelectorAll("[data-curve]")].map((figure) => [figure, drawn(figure, data)]);
  new ResizeObserver(() => {
    for (const [figure, plot] of plots) {
      plot.setSize({ width: figure.querySelector(".plot").clientWidth, height: PLOT_HEIGHT });
    }
  }).observe(group);
}
