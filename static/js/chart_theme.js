// Colours and fonts of charts, read from the design tokens; charts draw again on "conch:theme".

const SERIES = ["--s1", "--s2", "--s4", "--s3", "--s5", "--s6"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];

// Around the plot, in pixels.
export const MARGIN = { l: 48, r: 12, t: 8, b: 24 };

export function readTheme() {
  const style = getComputedStyle(document.documentElement);
  const token = (name) => style.getPropertyValue(name).trim();
  return {
    text: token("--text"),
    muted: token("--muted"),
    border: token("--border"),
    surface: token("--surface"),
    accent: token("--accent"),
    warn: token("--warn"),
    series: SERIES.map(token),
    dashes: DASHES,
    font: token("--font"),
    mono: token("--mono"),
  };
}

export function baseLayout(theme, { from, to, log, percent }) {
  const axis = {
    gridcolor: theme.border,
    linecolor: theme.border,
    zeroline: false,
    tickfont: { family: theme.mono, size: 10, color: theme.muted },
    automargin: false,
    fixedrange: true,
  };
  return {
    margin: MARGIN,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: theme.font, size: 11, color: theme.muted },
    showlegend: false,
    hovermode: "x unified",
    hoverlabel: { bgcolor: theme.surface, bordercolor: theme.border, font: { family: theme.font, size: 12, color: theme.text } },
    xaxis: { ...axis, type: "date", range: [from, to], showgrid: false, nticks: 5, tickformat: "%H:%M", hoverformat: "%H:%M:%S" },
    yaxis: { ...axis, nticks: 5, type: log ? "log" : "linear", rangemode: "tozero", ...(percent ? { range: [0, 100] } : {}), ...(log ? { dtick: 1, exponentformat: "none" } : { tickformat: ",.4~r" }) },
  };
}
