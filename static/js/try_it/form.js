// Try-it view of any model: one fieldset an input, made from the model's metadata.

import { clear, dropZone, el, bytesText } from "./dom.js";
import { SCALES, fromFile, fromImage, fromJson, generated, parseShape } from "./tensor_input.js";
import { imageLayout } from "./ctc.js";

export function mount(root, { model, send, report, refuse }) {
  const problems = el("div", { class: "error-summary", tabindex: -1, role: "alert", hidden: true });
  const fields = model.inputs.map((input, index) => inputField(input, `try-${index}`));
  const classes = classificationField(model);
  const sequence = model.sequence_ids ? sequenceField(model.sequence_ids) : null;
  let worker;
  const submit = async (event) => {
    event.preventDefault();
    problems.hidden = true;
    const inputs = await collect(fields, problems);
    if (!inputs) return refuse();
    const request = { inputs, outputs: wantedOutputs(model, classes), ...(sequence && { parameters: sequence.read() }) };
    if (request.parameters?.sequence_start) worker = undefined;
    await report(send(request, { worker }).then((answer) => {
      // The rest of the sequence goes where it began.
      ({ worker } = sequence ? answer : {});
      sequence?.goOn();
    }));
  };
  root.append(
    el("form", { class: "stack", onsubmit: submit, novalidate: true },
      problems,
      model.is_decoupled ? el("p", { class: "muted" }, "This model may answer a request any number of times. Each answer is shown as it comes.") : null,
      sequence?.element,
      fields.map(({ element }) => element),
      classes?.element,
      el("p", {}, el("button", { type: "submit", class: "button primary" }, "Send")),
    ),
  );
}

async function collect(fields, problems) {
  const found = [];
  const inputs = [];
  for (const field of fields) {
    field.error.textContent = "";
    field.control().removeAttribute("aria-invalid");
    if (!field.isSent()) continue;
    try {
      inputs.push(await field.read());
    } catch (problem) {
      field.error.textContent = problem.message;
      field.control().setAttribute("aria-invalid", "true");
      found.push({ field, problem });
    }
  }
  if (!found.length) return inputs;
  const links = found.map(({ field, problem }) =>
    el("li", {}, el("a", { href: `#${field.control().id}`, onclick: (event) => {
      event.preventDefault();
      field.control().focus();
    } }, problem.message)));
  clear(problems, el("p", {}, "The request was not sent:"), el("ul", {}, links));
  problems.hidden = false;
  problems.focus();
  return null;
}

function wantedOutputs(model, classes) {
  const count = classes ? Number(classes.input.value) : 0;
  return model.outputs.map(({ name, has_labels: hasLabels }) =>
    hasLabels && count > 0 ? { name, classification: count } : { name });
}

function classificationField(model) {
  if (!model.outputs.some((output) => output.has_labels)) return null;
  const input = el("input", { type: "number", id: "try-classes", min: 0, max: 100, value: 5 });
  const element = el("div", { class: "form-row" },
    el("label", { for: "try-classes" }, "Best labels to show"), input,
    el("span", { class: "muted" }, "0: the raw scores"));
  return { element, input };
}

// Which sequence the request belongs to; after an answer the next one goes on with it.
function sequenceField(ids) {
  const isText = ids === "text";
  const fresh = () => 1 + Math.floor(Math.random() * 1e9);
  const id = el("input", { type: isText ? "text" : "number", id: "try-sequence", min: isText ? undefined : 1, required: true, autocomplete: "off" });
  const start = el("input", { type: "checkbox", id: "try-start" });
  const end = el("input", { type: "checkbox", id: "try-end" });
  const begin = () => {
    id.value = isText ? `sequence-${fresh()}` : String(fresh());
    [start.checked, end.checked] = [true, false];
  };
  begin();
  const flag = (box, label) => el("p", {}, box, " ", el("label", { for: box.id }, label));
  const element = el("fieldset", { class: "tensor" },
    el("legend", {}, el("strong", {}, "Sequence")),
    row("Sequence ID", id), flag(start, "Start: the first request"), flag(end, "End: the last request"));
  const read = () => ({ sequence_id: isText ? id.value : Number(id.value), sequence_start: start.checked, sequence_end: end.checked });
  const goOn = () => (end.checked ? begin() : (start.checked = false));
  return { element, read, goOn };
}

// An input's fieldset: how it is given (values, file, image), its shape, the data.
function inputField(input, id) {
  const layout = imageLayout(input.dims);
  const error = el("p", { class: "field-error", id: `${id}-error` });
  const shape = el("input", { type: "text", id: `${id}-shape`, value: input.example_shape.join(", "), autocomplete: "off" });
  const values = el("textarea", { id: `${id}-values`, rows: 4, spellcheck: "false", class: "code", "aria-describedby": error.id });
  values.value = input.example;
  const sent = input.optional ? el("input", { type: "checkbox", id: `${id}-sent` }) : null;
  const file = filePart(id);
  const scale = el("select", { id: `${id}-scale` }, Object.entries(SCALES).map(([key, { label }]) => el("option", { value: key }, label)));
  if (input.datatype.includes("INT")) scale.value = "bytes";
  const ways = { values: "Values (JSON)", zeros: "Zeros", random: "Random values", file: input.datatype === "BYTES" ? "File: its content" : "File: raw little-endian" };
  if (input.datatype === "BYTES") ["zeros", "random"].forEach((key) => delete ways[key]);
  if (layout) ways.image = `Image (${layout.name})`;
  const way = el("select", { id: `${id}-way` }, Object.entries(ways).map(([key, label]) => el("option", { value: key }, label)));
  const parts = { values: el("div", { class: "stack" }, el("label", { for: values.id, class: "visually-hidden" }, `Values of ${input.name}`), values), file: file.element, image: row("Pixel values", scale) };
  const choose = () => {
    parts.values.hidden = way.value !== "values";
    parts.file.hidden = !["file", "image"].includes(way.value);
    parts.image.hidden = way.value !== "image";
  };
  way.addEventListener("change", choose);
  if (!input.example) way.value = layout ? "image" : "random";
  choose();
  const element = el("fieldset", { class: "tensor" },
    el("legend", {}, el("strong", {}, input.name), " ", el("code", {}, `${input.datatype} [${input.shape.join(", ")}]`), input.optional ? " optional" : null),
    sent ? el("p", {}, sent, " ", el("label", { for: sent.id }, "Send this input")) : null,
    el("div", { class: "tensor-ways" }, row("Give it as", way), row("Shape", shape)),
    parts.image, parts.values, parts.file, error);
  const read = async () => {
    const tensor = { name: input.name, datatype: input.datatype, shape: parseShape(shape.value, input.name) };
    if (way.value === "values") return fromJson(values.value, tensor);
    if (["zeros", "random"].includes(way.value)) return generated(way.value, tensor);
    if (!file.chosen()) throw new Error(`${input.name}: no file is chosen.`);
    return way.value === "image" ? fromImage(file.chosen(), tensor, scale.value) : fromFile(file.chosen(), tensor);
  };
  const control = () => (way.value === "values" ? values : parts.file.hidden ? shape : file.input);
  return { element, error, read, control, isSent: () => !sent || sent.checked };
}

function row(label, control) {
  return el("div", { class: "form-row" }, el("label", { for: control.id }, label), control);
}

function filePart(id) {
  let chosen = null;
  const name = el("p", { class: "muted" }, "No file chosen.");
  const zone = dropZone({
    label: "Drop a file here or choose one",
    hint: "",
    onFiles: ([file]) => {
      chosen = file;
      name.textContent = `${file.name} · ${bytesText(file.size)}`;
    },
  });
  const input = zone.querySelector("input");
  input.id = `${id}-file`;
  return { element: el("div", {}, zone, name), input, chosen: () => chosen };
}
