// One vertical line through every chart of the page, at the time that the pointer is on in one.

const charts = new Set();

// `place(time)` says where a time lies in the plot, in pixels from its left edge, or null.
export function shareCrosshair(plot, place) {
  const line = document.createElement("div");
  line.className = "crosshair";
  line.hidden = true;
  plot.append(line);
  const chart = { line, place };
  charts.add(chart);
  plot.on("plotly_hover", ({ points }) => show(chart, new Date(points[0].x)));
  plot.on("plotly_unhover", () => show(null, null));
  return () => {
    charts.delete(chart);
    line.remove();
  };
}

function show(source, time) {
  for (const chart of charts) {
    const left = time && chart !== source ? chart.place(time) : null;
    chart.line.hidden = left === null;
    if (left !== null) chart.line.style.left = `${left}px`;
  }
}
