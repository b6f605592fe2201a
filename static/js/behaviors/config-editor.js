// The Config tab: an Ace editor over the form's <textarea>, which stays the form's field, with a
// check of the text while it is typed. Without this file the textarea and the save buttons work.

import { THEME, createMode } from "../config_editor/pbtxt_mode.js";
import { annotate, findings } from "../config_editor/annotations.js";
import { completer } from "../config_editor/completion.js";
import { applyRepair, repairOf } from "../config_editor/repair.js";

const PAUSE_MS = 350;

export function connect(form) {
  const field = form.querySelector("textarea[name=text]");
  const state = { form, field, saved: form.querySelector("[data-part=saved]").defaultValue, checked: field.value, timer: 0, abort: null, editor: null };
  const listen = new AbortController();
  const { signal } = listen;
  if (window.ace) state.editor = createEditor(state);
  else field.addEventListener("input", () => changed(state), { signal });
  form.addEventListener("submit", (event) => guardSubmit(event, state), { signal });
  document.addEventListener("click", (event) => followLine(event, state), { signal });
  document.addEventListener("click", (event) => fix(event, state), { signal });
  window.addEventListener("beforeunload", (event) => {
    if (isDirty(state) && !state.isLeaving) event.preventDefault();
  }, { signal });
  annotate(state);
  showStatus(state);
  return () => {
    listen.abort();
    clearTimeout(state.timer);
    state.abort?.abort();
    state.editor?.destroy();
  };
}

function createEditor(state) {
  const { ace } = window;
  const { form, field } = state;
  ace.config.set("useStrictCSP", true);
  const place = document.createElement("div");
  place.className = "code-editor";
  field.after(place);
  field.hidden = true;
  const editor = ace.edit(place, {
    mode: createMode(ace),
    theme: THEME,
    value: field.value,
    minLines: 14,
    maxLines: 40,
    tabSize: 2,
    useSoftTabs: true,
    showPrintMargin: false,
    fontSize: 13,
    fontFamily: getComputedStyle(document.documentElement).getPropertyValue("--mono") || "monospace",
    useWorker: false,
    enableKeyboardAccessibility: true,
    textInputAriaLabel: "Text of config.pbtxt",
    readOnly: field.readOnly,
    animatedScroll: false,
  });
  editor.session.setValue(field.value);
  const schema = document.getElementById("config-schema");
  if (schema && ace.require("ace/ext/language_tools")) {
    editor.setOptions({ enableBasicAutocompletion: true, enableLiveAutocompletion: false });
    editor.completers = [completer(JSON.parse(schema.textContent))];
  }
  editor.session.on("change", () => {
    field.value = editor.getValue();
    changed(state);
  });
  editor.commands.addCommand({
    name: "save",
    bindKey: { win: "Ctrl-S", mac: "Command-S" },
    exec: () => form.querySelector("button[value=save]")?.click(),
  });
  return editor;
}

function isDirty({ field, saved }) {
  return field.value !== saved;
}

// <form data-checking> stands while the findings are of an older text than the field's.
function changed(state) {
  showStatus(state);
  state.form.toggleAttribute("data-checking", true);
  clearTimeout(state.timer);
  state.timer = setTimeout(() => check(state), PAUSE_MS);
}

async function check(state) {
  const { form, field } = state;
  clearTimeout(state.timer);
  form.toggleAttribute("data-checking", true);
  state.abort?.abort();
  state.abort = new AbortController();
  const { signal } = state.abort;
  const body = new FormData(form);
  const text = field.value;
  body.set("text", text);
  try {
    const response = await fetch(form.dataset.checkUrl, { method: "POST", body, signal, headers: { "X-Fragment": "config-check" } });
    if (!response.ok) throw new Error(`status ${response.status}`);
    const parsed = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const fresh of parsed.querySelectorAll("[data-replace]")) {
      document.getElementById(fresh.id)?.replaceChildren(...fresh.childNodes);
    }
    state.checked = text;
    // The copy buttons among the fresh parts need their behaviour.
    document.body.dispatchEvent(new CustomEvent("conch:changed", { bubbles: true }));
    annotate(state);
    showStatus(state);
  } catch (problem) {
    if (problem.name !== "AbortError") showStatus(state, `The check did not answer (${problem.message}); saving still checks.`);
  }
  if (!signal.aborted && field.value === text) form.toggleAttribute("data-checking", false);
}

function showStatus(state, problem = "") {
  const status = state.form.querySelector("[data-part=status]");
  if (status) status.textContent = problem || (isDirty(state) ? "Edited, not saved" : status.dataset.clean ?? "");
}

function guardSubmit(event, state) {
  const hasErrors = findings().some(({ severity }) => severity === "error");
  if (hasErrors && event.submitter?.name === "action") {
    event.preventDefault();
    const heading = document.querySelector("#config-findings [data-part=heading]");
    heading?.focus();
    heading?.scrollIntoView({ block: "nearest" });
    return;
  }
  state.isLeaving = true;
}

// A repair is about the text that was checked: after further edits its place may be another one.
function fix(event, state) {
  const button = event.target.closest("button[data-fix]");
  if (!button) return;
  if (state.field.value === state.checked) {
    applyRepair(state, repairOf(button));
    showStatus(state, `Done: ${button.dataset.fix}. Edited, not saved`);
  } else {
    showStatus(state, "The text has changed since the check: it is checked again");
  }
  check(state);
}

function followLine(event, { editor, field }) {
  const link = event.target.closest("a[data-go-line]");
  if (!link) return;
  event.preventDefault();
  const line = Number(link.dataset.goLine);
  if (editor) {
    editor.gotoLine(line, Number(link.dataset.goColumn || 1) - 1, false);
    editor.focus();
  } else {
    const at = field.value.split("\n").slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    field.focus();
    field.setSelectionRange(at, at);
  }
}
