// The legend of a chart, which is its text summary too: each line's sample, name and newest value.
// Where the page offers it (data-filter), a line's name leads to the page for that line alone.
import { short, summarize } from "./charts.js";

export function showLegend(element, view, filter) {
  const { parts, left } = summarize(view);
  const names = JSON.stringify([parts.map(({ name }) => name), left]);
  // Only texts change from second to second, so that focus stays on a link.
  if (element.dataset.names !== names) {
    element.dataset.names = names;
    element.replaceChildren(build(parts, left, view, filter));
  }
  parts.forEach(({ name, text, low, high }, index) => {
    const item = element.querySelectorAll(".legend-item")[index];
    const words = view.rows ? `${name}: ${text}` : `${name} ${text}`;
    if (item.textContent !== words) item.textContent = words;
    if (low !== undefined) item.title = `lowest ${short(low)}, highest ${short(high)}`;
  });
}

function build(parts, left, view, filter) {
  const list = document.createElement("span");
  list.className = "legend";
  parts.forEach(({ name }, index) => {
    const item = document.createElement(filter && view.byModel ? "a" : "span");
    item.className = `legend-item${view.rows ? " legend-item--plain" : ` series-${(index % 6) + 1}`}`;
    if (item.localName === "a") item.href = filter + encodeURIComponent(name);
    list.append(item);
  });
  if (!parts.length) list.textContent = "Nothing to show yet";
  if (left) list.append(` and ${left} more`);
  return list;
}
