// Try-it view of a model that takes text (BYTES) and gives a few values back.

import { clear, el } from "./dom.js";

const EXAMPLE = "The quick brown fox jumps over the lazy dog. The dog sleeps on.";

export function mount(root, { model, send, report }) {
  const verdict = el("div", { class: "verdict", "aria-live": "polite" });
  const field = el("textarea", { id: "try-text", rows: 5, spellcheck: "false" });
  field.value = EXAMPLE;
  const ask = async () => {
    const [input] = model.inputs;
    const shape = input.shape.map((dim) => (Number(dim) === -1 ? 1 : Number(dim)));
    const { outputs } = await send({
      inputs: [{ name: input.name, datatype: "BYTES", shape, data: [field.value] }],
      outputs: model.outputs.map(({ name }) => ({ name, binary: false })),
    });
    const rows = outputs.flatMap(({ name, data }) => [
      el("dt", {}, name),
      el("dd", {}, data.map(written).join(", ")),
    ]);
    clear(verdict, el("dl", { class: "verdict-list" }, rows));
  };
  root.append(
    el("form", { class: "stack", onsubmit: (event) => {
      event.preventDefault();
      report(ask(), verdict);
    } },
      el("div", { class: "form-row" }, el("label", { for: "try-text" }, "Text"), field),
      el("p", {}, el("button", { type: "submit", class: "button primary" }, "Send"))),
    verdict,
  );
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) report(ask(), verdict);
  });
}

function written(value) {
  return typeof value === "number" && !Number.isInteger(value) ? value.toFixed(3) : String(value);
}
