// The answer to a request: status and time, every output as a table, the JSON behind it.

import { parseClass } from "./file_ends.js";
import { bars, clear, el, percent, stateMark, table } from "./dom.js";

const ROWS = 50;
const STREAM_ROWS = 200;

// `isFolded`: the view beside it shows what the outputs mean; the tensors wait under a summary.
export function showAnswer(panel, { status, millis, json, outputs }, request, { isFolded = false } = {}) {
  const asked = Object.fromEntries((request.outputs ?? []).map((output) => [output.name, output.classification]));
  const parts = outputs.map((output) => outputPart(output, asked[output.name]));
  clear(panel,
    el("p", { class: "answer-line" }, stateMark("ok", `${status} OK`), ` · ${millis.toFixed(1)} ms round trip`, json.model_version ? ` · version ${json.model_version}` : ""),
    isFolded ? el("details", {}, el("summary", {}, "Output tensors"), el("div", { class: "stack" }, parts)) : parts,
    el("details", {}, el("summary", {}, "Response JSON"), el("pre", { class: "code-block", tabindex: 0 }, asText(json, outputs))),
  );
}

// The answers of a model that sends any number of them, a row each as it comes.
export function streamPanel(panel, outputs) {
  const line = el("p", { class: "answer-line" }, "Waiting for the first answer …");
  const heads = [{ text: "Answer", num: true }, { text: "After, ms", num: true }, ...outputs.map(({ name }) => ({ text: name }))];
  const answers = table("Answers", heads, []);
  const more = el("p", { class: "muted" });
  clear(panel, line, el("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": "Answers" }, answers), more);
  let count = 0;
  return {
    add({ json, millis }) {
      count += 1;
      clear(line, `${count} answer${count === 1 ? "" : "s"} so far …`);
      if (count > STREAM_ROWS) return void clear(more, `and ${count - STREAM_ROWS} more`);
      const cells = outputs.map(({ name }) => el("td", { class: "break" }, shortText(json[name])));
      answers.tBodies[0].append(el("tr", {}, el("td", { class: "num" }, count), el("td", { class: "num" }, millis.toFixed(1)), cells));
    },
    end({ status, millis }) {
      clear(line, stateMark("ok", `${status} OK`), ` · ${count} answer${count === 1 ? "" : "s"} in ${millis.toFixed(1)} ms`);
    },
    fail({ message }) {
      clear(line, stateMark("bad", "Failed"), ` · after ${count} answer${count === 1 ? "" : "s"}`);
      clear(more, message);
    },
    get isEmpty() {
      return count === 0;
    },
  };
}

function shortText(value) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "—";
  return text.length > 300 ? `${text.slice(0, 300)}…` : text;
}

export function showFailure(panel, { status, millis, message }) {
  const first = status ? `${status}${millis ? ` · ${millis.toFixed(1)} ms` : ""}` : "No answer";
  clear(panel,
    el("p", { class: "answer-line" }, stateMark("bad", first)),
    el("p", { class: "answer-error" }, message),
  );
}

function outputPart(output, classification) {
  const head = el("h3", { class: "output-head" }, output.name, " ", el("code", {}, `${output.datatype} [${output.shape.join(", ")}]`));
  if (classification) return el("section", {}, head, classBars(output));
  if (output.data.length === 1) return el("section", {}, head, el("p", { class: "mono break" }, valueText(output.data[0])));
  return el("section", {}, head, valueTable(output));
}

function classBars(output) {
  const items = output.data.map(parseClass);
  const largest = Math.max(...items.map(({ score }) => score));
  const areProbabilities = items.every(({ score }) => score >= 0 && score <= 1);
  return bars(`Best labels of ${output.name}`, items.map(({ label, score, index }) => ({
    label: `${label} (${index})`,
    value: areProbabilities ? score : score / (largest || 1),
    text: areProbabilities ? percent(score) : score.toPrecision(5),
  })));
}

// Rows of the last axis's length where that is short, else one value a row with its index.
function valueTable({ name, datatype, shape, data }) {
  const num = datatype !== "BYTES";
  const values = Array.from(data.slice(0, 5000));
  const columns = shape.length > 1 && Number(shape.at(-1)) <= 8 ? Number(shape.at(-1)) : 1;
  const rows = [];
  for (let at = 0; at < values.length && rows.length < ROWS; at += columns) {
    rows.push([indexText(at / columns, columns === 1 ? shape : shape.slice(0, -1)), ...values.slice(at, at + columns).map(valueText)]);
  }
  const heads = [{ text: "Index" }, ...Array.from({ length: columns }, (_, column) => ({ text: columns === 1 ? "Value" : String(column), num }))];
  const rest = data.length - rows.length * columns;
  return el("div", { class: "table-scroll", tabindex: 0, role: "region", "aria-label": `Values of ${name}` },
    table(`Values of ${name}`, heads, rows),
    rest > 0 ? el("p", { class: "muted" }, `and ${rest.toLocaleString("en")} more`) : null);
}

function indexText(flat, shape) {
  const index = [];
  let rest = flat;
  for (const dim of [...shape].reverse()) {
    index.unshift(rest % Number(dim));
    rest = Math.floor(rest / Number(dim));
  }
  return index.length ? `[${index.join(", ")}]` : "—";
}

export function valueText(value) {
  if (value instanceof Uint8Array) return `${value.length} bytes`;
  if (typeof value === "number" && !Number.isInteger(value)) return value.toPrecision(6);
  return String(value);
}

// The response's JSON with the binary outputs written out, shortened where long.
export function asText(json, outputs) {
  const whole = {
    ...json,
    ...(json.outputs && { outputs: outputs.map(({ name, datatype, shape, data }) => ({
      name, datatype, shape, data: Array.from(data.slice(0, 200), plain), ...(data.length > 200 && { elements_not_shown: data.length - 200 }),
    })) }),
  };
  return JSON.stringify(whole, null, 2);
}

function plain(value) {
  if (typeof value === "bigint") return Number(value);
  if (value instanceof Uint8Array) return `<${value.length} bytes>`;
  return Number.isNaN(value) || Math.abs(value) === Infinity ? String(value) : value;
}
