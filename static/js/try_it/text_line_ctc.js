// Try-it view of a recogniser of one text line: an image -> 48 pixels high, normalised -> characters.

import { clear, dropZone, el, percent, table } from "./dom.js";
import { drawLine, greedyDecode, lineWidth, pixelsOf, readImage, toPlanes } from "./ctc.js";

const MINIMUM_WIDTH = 320;
const LONGEST = 3200;

export function mount(root, { model, send, report, labels }) {
  const verdict = el("div", { class: "verdict", "aria-live": "polite" });
  const input = el("input", { type: "text", id: "try-line", value: "Served by Conch, 2026", maxlength: 120, autocomplete: "off" });
  const recognise = async (image, name) => {
    const tensor = lineTensor(image);
    const { outputs } = await send({
      inputs: [{ name: model.inputs[0].name, datatype: "FP32", shape: [1, ...tensor.shape], data: tensor.values }],
      outputs: [{ name: model.outputs[0].name }],
    });
    const [, steps, classes] = outputs[0].shape.map(Number);
    const decoded = greedyDecode(outputs[0].data, steps, classes, await labels(outputs[0].name));
    clear(verdict, ...show(decoded, tensor.canvas, name));
  };
  root.append(
    dropZone({
      label: "Drop an image of one line of text here or choose one",
      hint: "Scaled to 48 pixels high in this browser.",
      accept: "image/*",
      onFiles: ([file]) => report(readImage(file).then((image) => recognise(image, file.name)), verdict),
    }),
    el("form", { class: "toolbar", onsubmit: (event) => {
      event.preventDefault();
      const text = input.value.trim();
      if (text) report(recognise(drawLine(text), "drawn text"), verdict);
      else input.focus();
    } },
      el("label", { for: "try-line" }, "Or draw this text"), input,
      el("button", { type: "submit", class: "button" }, "Draw and read")),
    verdict,
  );
}

// image -> FP32 [3, 48, width] in the order blue, green, red, values -1 to 1, zero to the right.
export function lineTensor(image) {
  const width = Math.min(LONGEST, lineWidth(image.width, image.height));
  const planeWidth = Math.max(MINIMUM_WIDTH, width);
  const { canvas, pixels } = pixelsOf(image, width, 48);
  const values = toPlanes(pixels, width, 48, { order: [2, 1, 0], scale: (value) => value / 127.5 - 1, planeWidth });
  return { values, shape: [3, 48, planeWidth], canvas };
}

function show({ text, confidence, characters }, canvas, name) {
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `The image as sent: ${name}`);
  canvas.classList.add("sent-image");
  const rows = characters.map(({ text: character, score }) => [character === " " ? "space" : character, percent(score)]);
  return [
    canvas,
    el("p", { class: "verdict-word verdict-line" }, text || "No characters found"),
    text ? el("p", { class: "muted" }, `${characters.length} characters, mean confidence ${percent(confidence)}`) : null,
    text ? el("details", {}, el("summary", {}, "Each character"), table("Characters and confidence", [{ text: "Character" }, { text: "Confidence", num: true }], rows)) : null,
  ];
}
