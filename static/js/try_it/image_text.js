// Try-it view of a model that reads text: an image file (BYTES) -> texts, and boxes and scores where it
// gives them. Which output is which follows from datatypes and shapes.

import { clear, dropZone, el, percent, svg, table } from "./dom.js";
import { readImage } from "./ctc.js";
import { drawPage, toFile } from "./page_drawing.js";

const EXAMPLE = "Conch reads this\nInvoice 2026-0417\nTotal: 1,284.50 EUR";
const LONGEST_SHOWN = 1600;

export function mount(root, { model, send, report, signal }) {
  const verdict = el("div", { class: "verdict", "aria-live": "polite" });
  const read = async (file) => {
    const image = await readImage(file);
    clear(verdict, el("p", { class: "muted" }, `Reading ${file.name || "the image"} …`));
    const [input] = model.inputs;
    const { outputs } = await send({
      inputs: [{ name: input.name, datatype: "BYTES", shape: input.shape.map((dim) => (dim === -1 ? 1 : dim)), data: [new Uint8Array(await file.arrayBuffer())], binary: true }],
      outputs: model.outputs.map(({ name }) => ({ name })),
    });
    clear(verdict, ...show(image, linesOf(outputs)));
  };
  const take = (file) => report(read(file), verdict);
  const field = el("textarea", { id: "try-page", rows: 3, spellcheck: "false" });
  field.value = EXAMPLE;
  const drawn = async () => toFile(drawPage(field.value));
  root.append(
    dropZone({
      label: "Drop an image here, choose one, or paste it",
      hint: "PNG, JPEG or WebP; it goes to the model as it is.",
      accept: "image/*",
      onFiles: ([file]) => take(file),
    }),
    el("form", { class: "stack", onsubmit: (event) => {
      event.preventDefault();
      report(drawn().then(read), verdict);
    } },
      el("div", { class: "form-row" }, el("label", { for: field.id }, "Or let this text be drawn"), field),
      el("p", {}, el("button", { type: "submit", class: "button" }, "Draw and read"))),
    verdict,
  );
  document.addEventListener("paste", (event) => {
    const file = [...(event.clipboardData?.files ?? [])].find(({ type }) => type.startsWith("image/"));
    if (!file) return;
    event.preventDefault();
    take(file);
  }, { signal });
}

// Output tensors -> [{text, score, box}]: score a number or null, box four corners or null.
export function linesOf(outputs) {
  const texts = outputs.find(({ datatype }) => datatype === "BYTES");
  if (!texts) throw new Error("No output of this model holds text (BYTES). Use Every input to see what it gives.");
  const count = texts.data.length;
  const boxes = outputs.find(({ shape }) => shape.slice(-2).map(Number).join() === "4,2");
  const scores = outputs.find((output) => output.datatype.startsWith("FP") && output !== boxes && output.data.length === count);
  return Array.from(texts.data, (text, index) => ({
    text: String(text),
    score: scores ? Number(scores.data[index]) : null,
    box: boxes?.data.length === 8 * count ? cornersOf(boxes.data, 8 * index) : null,
  }));
}

function cornersOf(data, from) {
  return [0, 2, 4, 6].map((at) => [Number(data[from + at]), Number(data[from + at + 1])]);
}

function show(image, lines) {
  const picture = figure(image, lines);
  if (!lines.length) return [picture, el("p", { class: "verdict-word" }, "No text found")];
  const heads = [{ text: "Line" }, { text: "Text" }, ...(lines.some(({ score }) => score !== null) ? [{ text: "Confidence", num: true }] : [])];
  const rows = lines.map(({ text, score }, index) => [index + 1, el("span", { class: "break" }, text), ...(score === null ? [] : [percent(score)])]);
  const list = el("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Lines that were read" }, table("Lines that were read", heads, rows));
  point(list, picture);
  return [
    picture,
    el("p", { class: "verdict-word" }, `${lines.length} ${lines.length === 1 ? "line" : "lines"} of text`),
    list,
    el("details", {}, el("summary", {}, "As plain text"), el("pre", { class: "code-block", tabindex: 0 }, lines.map(({ text }) => text).join("\n"))),
  ];
}

// The image as sent, with a numbered outline around every line.
function figure(image, lines) {
  const scale = Math.min(1, LONGEST_SHOWN / Math.max(image.width, image.height));
  const canvas = el("canvas", { width: Math.round(image.width * scale), height: Math.round(image.height * scale), role: "img", "aria-label": "The image as sent; the lines stand in the table below" });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const outlines = lines.map(({ box }, index) => box && svg("g", { class: "text-box", "data-line": index },
    svg("polygon", { class: "text-box-back", points: box.map((corner) => corner.join()).join(" ") }),
    svg("polygon", { class: "text-box-line", points: box.map((corner) => corner.join()).join(" ") })));
  const overlay = svg("svg", { class: "text-boxes", viewBox: `0 0 ${image.width} ${image.height}`, "aria-hidden": "true" }, outlines.filter(Boolean));
  return el("div", { class: "read-image" }, canvas, overlay);
}

// The outline of the row under the pointer stands out, and the row of the outline.
function point(list, picture) {
  const rows = [...list.querySelectorAll("tbody tr")];
  const mark = (index) => {
    rows.forEach((row, at) => row.classList.toggle("is-current", at === index));
    picture.querySelectorAll(".text-box").forEach((box) => box.classList.toggle("is-current", Number(box.dataset.line) === index));
  };
  rows.forEach((row, index) => row.addEventListener("pointerenter", () => mark(index)));
  list.addEventListener("pointerleave", () => mark(-1));
  picture.addEventListener("pointerover", ({ target }) => mark(Number(target.closest(".text-box")?.dataset.line ?? -1)));
  picture.addEventListener("pointerleave", () => mark(-1));
}
