// The Try it tab: picks the view for the model, sends its requests, shows answers and snippets.

import { infer, inferStream, streamBody } from "../kserve.js";
import { clear, el, stateMark } from "../try_it/dom.js";
import { showAnswer, showFailure, streamPanel } from "../try_it/result.js";
import { TOKEN_NOTE, asCurl, asPython, asStreamCurl, asStreamPython } from "../try_it/snippets.js";

const VIEWS = {
  file_ends: () => import("../try_it/file_ends.js"),
  form: () => import("../try_it/form.js"),
  image_text: () => import("../try_it/image_text.js"),
  speech_chunks: () => import("../try_it/speech_chunks.js"),
  text: () => import("../try_it/text.js"),
  text_line_ctc: () => import("../try_it/text_line_ctc.js"),
};

export function connect(element) {
  const model = JSON.parse(document.getElementById(element.dataset.model).textContent);
  const part = (name) => element.querySelector(`[data-part="${name}"]`);
  const page = { model, version: part("version"), answer: part("answer"), snippets: part("snippets"), abort: new AbortController() };
  page.isFolded = part("view").dataset.view !== "form";
  const views = [...element.querySelectorAll('[data-part="view"]')];
  const open = async (root) => {
    const { mount } = await VIEWS[root.dataset.view]();
    clear(root);
    mount(root, context(page));
  };
  views.forEach((root) => open(root).catch((problem) => clear(root, el("p", { class: "field-error" }, problem.message))));
  return () => page.abort.abort();
}

function context(page) {
  const { model } = page;
  return {
    model,
    signal: page.abort.signal,
    send: (request, options) => send(page, request, options),
    settle: (count) => clear(page.answer, el("p", { class: "answer-line" }, stateMark("ok", "200 OK"), ` · ${count} requests, ${(page.total / count).toFixed(1)} ms each`)),
    // The answer of an earlier request must not stand beside the refusal of this one.
    refuse: () => clear(page.answer, el("p", { class: "muted" }, "The request was not sent: see its inputs.")),
    labels: async (output) => (await fetch(`${model.labels_url}?output=${encodeURIComponent(output)}`).then((answer) => answer.json())).labels,
    // Runs a piece of work; what it throws is shown where the verdict would be.
    report: async (work, verdict) => {
      page.total = 0;
      try {
        await work;
      } catch (problem) {
        if (problem.name === "AbortError") return;
        if (problem.status === undefined) clear(verdict ?? page.answer, el("p", { class: "field-error" }, problem.message));
        else {
          showFailure(page.answer, problem);
          if (verdict) clear(verdict, el("p", { class: "field-error" }, problem.message));
        }
      }
    },
  };
}

async function send(page, request, { isQuiet = false, worker } = {}) {
  const version = page.version?.value;
  const base = `${page.model.infer_path}${version ? `/versions/${version}` : ""}`;
  if (page.model.is_decoupled) return sendStream(page, `${base}/generate_stream`, request, worker);
  const path = `${base}/infer`;
  if (!isQuiet) clear(page.answer, el("p", { class: "muted" }, "Waiting for the answer …"));
  const answer = await infer(path, request, { signal: page.abort.signal, worker });
  page.total = (page.total ?? 0) + answer.millis;
  if (!isQuiet) showAnswer(page.answer, answer, request, { isFolded: page.isFolded });
  if (!isQuiet || page.total === answer.millis) showSnippets(page, snippetsOf(page, path, version, request));
  return answer;
}

async function sendStream(page, path, request, worker) {
  const url = location.origin + path;
  const body = streamBody(request);
  const answers = streamPanel(page.answer, page.model.outputs);
  showSnippets(page, { curl: asStreamCurl(url, body), python: () => asStreamPython(url, body) });
  try {
    const end = await inferStream(path, request, { signal: page.abort.signal, worker, onAnswer: answers.add });
    answers.end(end);
    return end;
  } catch (problem) {
    if (problem.name === "AbortError" || answers.isEmpty) throw problem;
    answers.fail(problem);
    return {};
  }
}

function snippetsOf(page, path, version, request) {
  return { curl: asCurl(location.origin + path, request), python: () => asPython(location.origin, page.model.name, version, request) };
}

function showSnippets(page, { curl, python }) {
  const shown = el("pre", { class: "code-block", tabindex: 0, hidden: true });
  const snippet = (name, make) =>
    el("button", { type: "button", class: "button small", onclick: ({ target }) => copy(target, name, make(), shown) }, `Copy as ${name}`);
  clear(page.snippets,
    el("p", { class: "toolbar" },
      curl ? snippet("curl", () => curl) : null,
      snippet("Python", python)),
    shown,
    el("p", { class: "muted" }, TOKEN_NOTE, curl ? "" : " This request is too long or too binary for a command line."));
}

// Pages that are not served over TLS have no clipboard: the text is shown to be copied by hand.
async function copy(button, name, text, shown) {
  shown.textContent = text;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = `Copy as ${name}`), 2000);
  } catch {
    shown.hidden = false;
    getSelection().selectAllChildren(shown);
    shown.focus();
  }
}
