// Draws one chart with Plotly and keeps it going; its text summary and its table say the same.
import { MARGIN, baseLayout, readTheme } from "../chart_theme.js";
import { CHARTS, short } from "../charts.js";
import { shareCrosshair } from "../crosshair.js";
import { showLegend } from "../legend.js";
import { follow } from "../metrics.js";
import { loadPlotly } from "../plotly.js";

const CONFIG = { displayModeBar: false, responsive: true, doubleClick: false };
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function traces(view, times, theme) {
  if (view.rows) {
    const colors = [[0, theme.surface], [0.02, theme.border], [1, theme.series[0]]];
    return [{ type: "heatmap", x: times, y: view.rows.map((row) => row.name), z: view.rows.map((row) => row.values), colorscale: colors, showscale: false, xgap: 0, ygap: 2, hovertemplate: `batch %{y}: %{z:.1f} ${view.unit}<extra></extra>` }];
  }
  return view.lines.map(({ name, values }, index) => ({
    type: "scatter",
    mode: "lines",
    name,
    x: times,
    // A log axis has no place for 0.
    y: view.log ? values.map((value) => value || null) : values,
    connectgaps: false,
    line: { color: theme.series[index % 6], dash: theme.dashes[index % 6], width: 1.5 },
    hovertemplate: `%{y:,.4~g} ${view.unit}`,
  }));
}

// Loads and failures on the axis of the latency: thin lines, the newest with its name.
function marks(series, theme) {
  const from = series.times[0];
  const shown = series.events.filter((event) => event.at >= from).slice(-24);
  const span = series.times.at(-1) - from;
  const named = shown.slice(-1);
  return {
    shapes: shown.map((event) => ({
      type: "line",
      x0: new Date(event.at * 1000),
      x1: new Date(event.at * 1000),
      yref: "paper",
      y0: 0,
      y1: 1,
      line: { color: event.state === "UNAVAILABLE" ? theme.warn : theme.muted, width: 1, dash: "dot" },
    })),
    annotations: named.map((event) => ({
      x: new Date(event.at * 1000),
      xanchor: event.at - from > span / 2 ? "right" : "left",
      yref: "paper",
      y: 1,
      yanchor: "bottom",
      text: `${event.model}${event.version ? ` v${event.version}` : ""} ${event.state.toLowerCase()}`,
      showarrow: false,
      font: { size: 10, color: theme.muted },
    })),
    margin: { ...MARGIN, t: named.length ? 20 : MARGIN.t },
  };
}

function layoutOf(view, series, theme) {
  const from = new Date(series.times[0] * 1000);
  const to = new Date(series.times.at(-1) * 1000);
  const layout = baseLayout(theme, { from, to, log: view.log, percent: view.percent });
  if (view.rows) layout.yaxis = { ...layout.yaxis, type: "category", showgrid: false };
  if (view.rows) layout.hovermode = "closest";
  if (view.marks) Object.assign(layout, marks(series, theme));
  const values = (view.lines ?? view.rows).flatMap((line) => line.values).filter((value) => value !== null);
  // Whole decades, so that a log axis always has a tick or two.
  const above = values.filter((value) => value > 0);
  if (view.log && above.length) layout.yaxis.range = [Math.floor(Math.log10(Math.min(...above))), Math.floor(Math.log10(Math.max(...above))) + 1];
  // An all-zero chart keeps a sensible axis instead of -1 to 1.
  if (!view.rows && !view.log && !view.percent && Math.max(0, ...values) === 0) layout.yaxis.range = [0, 1];
  return layout;
}

function showTable(box, view, series) {
  const lines = view.lines ?? view.rows;
  const table = document.createElement("table");
  table.className = "table";
  const head = table.createTHead().insertRow();
  for (const text of ["Time", ...lines.map((line) => line.name)]) {
    const cell = document.createElement("th");
    cell.scope = "col";
    cell.textContent = text;
    cell.className = text === "Time" ? "" : "num";
    head.append(cell);
  }
  const body = table.createTBody();
  for (let index = series.times.length - 1; index >= 0; index -= 1) {
    const row = body.insertRow();
    row.insertCell().textContent = clock.format(new Date(series.times[index] * 1000));
    for (const line of lines) {
      const cell = row.insertCell();
      cell.className = "num";
      cell.textContent = short(line.values[index]);
    }
  }
  box.replaceChildren(table);
}

export function connect(element) {
  const plot = element.querySelector("[data-plot]");
  const summary = element.querySelector("[data-summary]");
  const details = element.querySelector("[data-table]");
  let last = null;
  let gone = false;
  let leave = null;

  async function draw(series, error) {
    if (error) {
      if (!last) summary.textContent = "The series could not be loaded; the next try follows.";
      return;
    }
    last = series;
    const view = CHARTS[element.dataset.chart](series);
    showLegend(summary, view, element.dataset.filter);
    if (details.open) showTable(details.querySelector("div"), view, series);
    const Plotly = await loadPlotly();
    if (gone) return;
    const theme = readTheme();
    const times = series.times.map((time) => new Date(time * 1000));
    await Plotly.react(plot, traces(view, times, theme), layoutOf(view, series, theme), CONFIG);
    if (!gone) leave ??= shareCrosshair(plot, place);
  }

  // Where a time lies in the plot: its margins are those of the layout.
  function place(time) {
    const [from, to] = [last.times[0], last.times.at(-1)];
    const share = (time / 1000 - from) / (to - from);
    return share >= 0 && share <= 1 ? MARGIN.l + share * (plot.clientWidth - MARGIN.l - MARGIN.r) : null;
  }

  const redraw = () => last && draw(last, null);
  document.addEventListener("conch:theme", redraw);
  details.addEventListener("toggle", redraw);
  const stop = follow(element.dataset.url, draw);
  return () => {
    gone = true;
    stop();
    leave?.();
    document.removeEventListener("conch:theme", redraw);
    window.Plotly?.purge(plot);
  };
}
