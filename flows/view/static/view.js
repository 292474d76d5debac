// What pages do beside their markup: curves, and buttons that copy.
"use strict";

const PLOT_HEIGHT = 190;
const style = getComputedStyle(document.documentElement);
const tone = (name) => style.getPropertyValue(`--${name}`).trim();

function drawn(figure, data) {
  const column = figure.dataset.curve;
  const place = figure.querySelector(".plot");
  const share = figure.dataset.share === "1";
  const series = data.lines.map((name, index) => ({
    label: data.lines.length > 1 ? name : "value",
    stroke: tone(`s${index % 7}`),
    width: 2,
    spanGaps: true,
    points: { show: data.epochs.length < 40, size: 5 },
  }));
  const band = {
    hooks: {
      drawClear: (plot) => {
        if (data.alpha === null || column !== "p_hat") return;
        const top = plot.valToPos(Math.min(1, data.alpha + data.k_min), "y", true);
        const bottom = plot.valToPos(Math.max(0, data.alpha - data.k_min), "y", true);
        plot.ctx.fillStyle = tone("band");
        plot.ctx.fillRect(plot.bbox.left, top, plot.bbox.width, bottom - top);
      },
    },
  };
  const axis = { stroke: tone("soft"), grid: { stroke: tone("grid"), width: 1 }, ticks: { show: false } };
  const options = {
    width: place.clientWidth,
    height: PLOT_HEIGHT,
    scales: { x: { time: false }, y: share ? { range: [0, 1] } : {} },
    axes: [{ ...axis, size: 28, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, { ...axis, size: 44 }],
    series: [{ label: "epoch" }, ...series],
    legend: { show: data.lines.length <= 8 },
    plugins: [band],
  };
  const lines = data.lines.map((name) => data.values[column][name]);
  return new uPlot(options, [data.epochs, ...lines], place);
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

for (const button of document.querySelectorAll("button.copy")) {
  if (!navigator.clipboard) continue;
  button.hidden = false;
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest("details").querySelector("pre").textContent);
    button.textContent = "copied";
  });
}
