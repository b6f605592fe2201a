// Try-it view of a file-type model: a dropped file -> its type with the nearest other guesses.

import { bars, bytesText, clear, dropZone, el, percent } from "./dom.js";
import { features, readEnds, ruleFor } from "./file_ends_features.js";

const GUESSES = 6;

export function mount(root, { model, send, report }) {
  const verdict = el("div", { class: "verdict", "aria-live": "polite" });
  const examine = async (file) => {
    clear(verdict, el("p", { class: "muted" }, `Reading ${file.name} …`));
    const { first, last } = await readEnds(file);
    const vector = features(first, last);
    const rule = ruleFor(file.size, first, vector);
    if (rule) {
      clear(verdict, ...heading(file, rule), el("p", { class: "muted" }, "Too short for the model: named by rule, no request was sent."));
      return;
    }
    const response = await send(request(model, vector));
    clear(verdict, ...show(file, response, model));
  };
  root.append(
    dropZone({
      label: "Drop a file here or choose one",
      hint: "Only its first and last 4 KiB are read, in this browser; the model sees 2 × 1024 bytes.",
      onFiles: ([file]) => report(examine(file), verdict),
    }),
    el("p", { class: "toolbar" }, el("span", { class: "muted" }, "No file at hand?"), ...samples((file) => report(examine(file), verdict))),
    verdict,
  );
}

function request(model, vector) {
  const [input] = model.inputs;
  return {
    inputs: [{ name: input.name, datatype: input.datatype, shape: [1, vector.length], data: vector }],
    outputs: [{ name: model.outputs[0].name, classification: GUESSES }],
  };
}

// A classification element is "score:index:label"; the label may hold colons itself.
export function parseClass(text) {
  const [score, index, ...label] = String(text).split(":");
  return { score: Number(score), index: Number(index), label: label.join(":") || `class ${index}` };
}

function show(file, { outputs }) {
  const guesses = outputs[0].data.map(parseClass);
  const [top] = guesses;
  const note = top.score < 0.5 ? "Below 50 %: take it as a guess." : `The model is ${percent(top.score)} sure.`;
  return [
    ...heading(file, top.label),
    el("p", { class: "muted" }, note),
    bars("Most likely file types", guesses.map(({ label, score }) => ({ label, value: score, text: percent(score) }))),
  ];
}

function heading(file, label) {
  return [
    el("p", { class: "verdict-word" }, label),
    el("p", { class: "muted" }, `${file.name} · ${bytesText(file.size)}`),
  ];
}

function samples(choose) {
  const make = {
    "Python source": ["hello.py", "import sys\n\n\ndef main(argv: list[str]) -> int:\n    for name in argv[1:]:\n        print(f'hello {name}')\n    return 0\n\n\nif __name__ == '__main__':\n    sys.exit(main(sys.argv))\n"],
    "JSON": ["reply.json", JSON.stringify({ model_name: "file_type", outputs: [{ name: "target_label", shape: [1, 214] }], took_ms: 12.5 }, null, 2)],
    "CSS": ["page.css", ":root { --accent: #2457d6; }\nbody { margin: 0; font: 14px/1.5 system-ui; color: #16181d; }\n.panel > h2 { padding: 1rem; border-bottom: 1px solid; }\n"],
  };
  return Object.entries(make).map(([label, [name, text]]) =>
    el("button", { type: "button", class: "button small", onclick: () => choose(new File([text], name)) }, label));
}
