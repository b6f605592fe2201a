// Small DOM builders for the try-it views. Text only ever enters as text nodes.

const SVG = "http://www.w3.org/2000/svg";

export function el(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== undefined && child !== null));
  return element;
}

export function table(caption, heads, rows) {
  const cell = (value, index) => el("td", { class: heads[index].num ? "num" : undefined }, value instanceof Node ? value : String(value));
  return el(
    "table",
    { class: "table" },
    el("caption", { class: "visually-hidden" }, caption),
    el("thead", {}, el("tr", {}, heads.map(headCell))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map(cell)))),
  );
}

const MARKS = {
  ok: ["dot", svg("circle", { cx: 6, cy: 6, r: 5 })],
  bad: ["triangle", svg("path", { d: "M6 .8 11.6 11H.4Z" })],
};

// Shape and word, as the template tag `state` draws them; tone is ok or bad.
export function stateMark(tone, word) {
  const [shape, drawing] = MARKS[tone];
  const mark = svg("svg", { class: `shape shape--${shape}`, viewBox: "0 0 12 12", "aria-hidden": "true" }, drawing.cloneNode());
  return el("span", { class: `state state--${tone}` }, mark, el("span", {}, word));
}

function headCell({ text, num, isHidden }) {
  const words = isHidden ? el("span", { class: "visually-hidden" }, text) : text;
  return el("th", { scope: "col", class: num ? "num" : undefined }, words);
}

// Horizontal bars with their numbers: [{label, value 0..1, text}].
export function bars(caption, items) {
  const rows = items.map(({ label, value, text }) => [label, bar(value), text]);
  const whole = table(caption, [{ text: "Label" }, { text: "Bar", isHidden: true }, { text: "Probability", num: true }], rows);
  whole.classList.add("bar-table");
  return whole;
}

// The number stands in the next column, so the drawing says nothing to a screen reader.
function bar(value) {
  const width = Math.max(0, Math.min(1, Number(value) || 0)) * 200;
  return svg(
    "svg",
    { class: "bar", viewBox: "0 0 200 8", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("rect", { class: "bar-track", width: 200, height: 8, rx: 2 }),
    svg("rect", { class: "bar-fill", width, height: 8, rx: 2 }),
  );
}

export function percent(value) {
  return `${(100 * Number(value)).toFixed(1)} %`;
}

export function bytesText(count) {
  if (count < 1024) return `${count} B`;
  if (count < 1024 ** 2) return `${(count / 1024).toFixed(1)} KiB`;
  return `${(count / 1024 ** 2).toFixed(1)} MiB`;
}

// Where a view's own controls, verdict and status line go.
export function clear(element, ...children) {
  element.replaceChildren(...children.flat().filter(Boolean));
  return element;
}

// A place for files: drop anywhere on it, or choose with the keyboard. Calls onFiles(FileList).
export function dropZone({ label, hint, accept, multiple = false, onFiles }) {
  const input = el("input", { type: "file", class: "visually-hidden", accept, multiple });
  const zone = el("label", { class: "drop-zone" }, input, el("span", { class: "drop-zone-label" }, label), el("span", { class: "muted" }, hint));
  input.addEventListener("change", () => {
    if (input.files.length) onFiles(input.files);
    input.value = "";
  });
  const over = (event) => {
    event.preventDefault();
    zone.classList.add("is-over");
  };
  zone.addEventListener("dragenter", over);
  zone.addEventListener("dragover", over);
  zone.addEventListener("dragleave", () => zone.classList.remove("is-over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("is-over");
    if (event.dataTransfer.files.length) onFiles(event.dataTransfer.files);
  });
  return zone;
}
