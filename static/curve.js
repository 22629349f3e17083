// A version's measured execution time against its size, with the line the scheduler expects.

import { colour } from "./charts.js";
import { figure } from "./figures.js";

const box = document.getElementById("curve");
const data = JSON.parse(document.getElementById("curve-data").textContent);
const HEIGHT_PX = 200;
let plot = null;

// Figures stand in the legend only while a point is pointed at: there is no newest one.
const read = (_, value) => (value === null || value === undefined ? "" : figure(value, "ms"));

function draw() {
  plot?.destroy();
  const axis = { stroke: colour("axis"), grid: { stroke: colour("grid"), width: 1 }, ticks: { show: false }, font: "11px Inter, system-ui, sans-serif" };
  const word = data.axis === "tokens" ? box.dataset.tokens : box.dataset.rowsWord;
  plot = new uPlot({
    width: box.clientWidth,
    height: HEIGHT_PX,
    padding: [10, 10, 0, 0],
    legend: { markers: { width: 0, fill: (_, i) => colour(i === 1 ? "execute" : "target") } },
    cursor: { drag: { x: false, y: false } },
    scales: { x: { time: false, range: (_, low, high) => [0, high * 1.04 || 1] }, y: { range: (_, low, high) => [0, high * 1.12 || 1] } },
    axes: [
      { ...axis, size: 26, label: word, labelSize: 18, labelGap: -2, labelFont: axis.font, values: (_, ticks) => ticks.map((tick) => tick.toLocaleString("en-US")) },
      { ...axis, size: 60, values: (_, ticks) => ticks.map((tick) => `${tick.toLocaleString("en-US")} ms`) },
    ],
    series: [
      { label: word, value: (_, value) => (value === null ? "" : value.toLocaleString("en-US")) },
      { label: box.dataset.measured, stroke: colour("execute"), width: 0, paths: () => null, points: { show: true, size: 6, fill: colour("execute") }, value: read },
      { label: box.dataset.fitted, stroke: colour("target"), width: 1.25, dash: [5, 5], points: { show: false }, value: read },
    ],
  }, [data.x, data.measured, data.fitted], box);
}

new ResizeObserver(() => plot?.setSize({ width: box.clientWidth, height: HEIGHT_PX })).observe(box);
document.addEventListener("tg:theme", draw);
draw();
