// The burn-down: the tables and the bytes that are left, each with an axis of its own, and the forecast of the end.
/* global uPlot */
import { formatBytes, formatCount, formatShort, formatTime } from "./format.js";

const colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The points of the forecast: the last known one, and the end. All others are gaps.
const columns = burnDown => {
  const { at, tables, bytes, forecast } = burnDown;
  const last = at.length - 1, gaps = at.map(() => null);
  const ahead = values => [...gaps.slice(0, last), values[last], 0];
  return forecast
    ? [[...at, forecast], [...tables, null], [...bytes, null], ahead(tables), ahead(bytes)]
    : [at, tables, bytes, gaps, gaps];
};

// Days, or hours where the ticks lie closer than days.
const days = ticks => {
  const apart = ticks.length > 1 ? ticks[1] - ticks[0] : 86400;
  const format = apart < 86400 ? { hour: "2-digit", minute: "2-digit" } : { day: "numeric", month: "short" };
  return ticks.map(tick => new Date(tick * 1000).toLocaleString("en-GB", format));
};

const options = width => {
  const dim = colour("dim"), line = colour("line");
  const axis = {
    stroke: dim, font: "12px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 },
  };
  const shown = (format, missing = "–") => (_, value) => value === null || value === undefined ? missing : format(value);
  const actual = (label, scale, tone, format) => ({
    label, scale, stroke: colour(tone), width: 2, value: shown(format), points: { show: false },
    fill: scale === "tables" ? `color-mix(in srgb, ${colour(tone)} 9%, transparent)` : undefined,
  });
  const ahead = (scale, tone) => ({
    scale, stroke: colour(tone), width: 1.5, dash: [5, 5], points: { show: false },
  });
  const fromZero = (_, __, most) => [0, Math.max(most * 1.05, 1)];
  return {
    width, height: Math.max(220, Math.min(320, width * 0.34)),
    legend: { live: true, markers: { width: 3 } },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: true }, tables: { range: fromZero }, bytes: { range: fromZero } },
    axes: [
      { ...axis, grid: { show: false }, space: 70, values: (_, values) => days(values) },
      { ...axis, scale: "tables", size: 58, values: (_, values) => values.map(formatShort) },
      { ...axis, scale: "bytes", side: 1, size: 70, grid: { show: false }, values: (_, values) => values.map(formatBytes) },
    ],
    series: [
      { label: "Time", value: shown(value => formatTime(value * 1000)) },
      actual("Tables left", "tables", "size", formatCount),
      actual("Data left", "bytes", "time", formatBytes),
      ahead("tables", "size"),
      ahead("bytes", "time"),
    ],
  };
};

export class BurnDownChart {
  constructor(target) {
    this.target = target;
    this.width = 0;
    new ResizeObserver(() => { if (Math.abs(target.clientWidth - this.width) > 1) this.draw(); }).observe(target);
    document.addEventListener("themechange", () => requestAnimationFrame(() => this.draw()));
  }

  show(burnDown) {
    const text = JSON.stringify(burnDown);
    if (text === this.text) return;
    this.text = text;
    this.burnDown = burnDown;
    this.draw();
  }

  draw() {
    this.plot?.destroy();
    this.plot = null;
    this.width = this.target.clientWidth;
    if (!this.burnDown?.at.length || this.width < 50) return;
    this.plot = new uPlot(options(this.width), columns(this.burnDown), this.target);
    // A legend names what the eye tells apart; the dashed lines are named by the sentence above the chart.
    this.target.querySelectorAll(".u-series:nth-child(n+4)").forEach(row => row.remove());
  }
}
