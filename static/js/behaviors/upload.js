// The upload form: drop a folder or files, see progress, continue after a broken connection. The
// files go through the REST API in chunks; without this file the form sends them as it is.

import { addressOf } from "../upload/address.js";
import { filesOf } from "../upload/dropped.js";
import { sendAll } from "../upload/send.js";

export function connect(form) {
  const part = (name) => form.querySelector(`[data-part="${name}"]`);
  const state = { form, part, picked: [], abort: null };
  const listen = new AbortController();
  const { signal } = listen;
  const input = form.querySelector("input[type=file]");
  const folder = folderInput();
  prepare(part);
  input.addEventListener("change", () => pick(state, plain(input.files)), { signal });
  folder.addEventListener("change", () => pick(state, plain(folder.files)), { signal });
  part("folder").addEventListener("click", () => folder.click(), { signal });
  part("cancel").addEventListener("click", () => state.abort?.abort(), { signal });
  bindDrop(part("zone"), (items) => pick(state, items), signal);
  form.addEventListener("submit", (event) => submit(event, state), { signal });
  return () => {
    state.abort?.abort();
    listen.abort();
  };
}

function prepare(part) {
  part("folder").hidden = false;
  part("label").textContent = "Drop a folder, a .zip, a .tar or a model file here";
  part("hint").textContent = "or choose files:";
}

function folderInput() {
  const input = document.createElement("input");
  input.type = "file";
  input.webkitdirectory = true;
  return input;
}

function plain(files) {
  return [...files].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

function bindDrop(zone, take, signal) {
  const over = (event) => {
    event.preventDefault();
    zone.classList.add("is-over");
  };
  zone.addEventListener("dragover", over, { signal });
  zone.addEventListener("dragleave", () => zone.classList.remove("is-over"), { signal });
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    zone.classList.remove("is-over");
    take(await filesOf(event.dataTransfer));
  }, { signal });
}

function pick(state, picked) {
  const { part } = state;
  state.picked = picked;
  showError(part, "");
  const shown = picked.slice(0, 8).map(({ path, file }) => item(`${path}  ${size(file.size)}`));
  if (picked.length > 8) shown.push(item(`and ${picked.length - 8} more`));
  part("chosen").replaceChildren(...shown);
}

function item(text) {
  const element = document.createElement("li");
  element.textContent = text;
  return element;
}

function size(bytes) {
  const units = ["B", "kB", "MB", "GB"];
  let index = 0;
  while (bytes >= 1000 && index < units.length - 1) {
    bytes /= 1000;
    index += 1;
  }
  return `${index ? bytes.toFixed(1) : bytes} ${units[index]}`;
}

function showError(part, text) {
  part("error").textContent = text;
  part("error").hidden = !text;
}

async function submit(event, state) {
  const { form, part, picked } = state;
  event.preventDefault();
  if (!picked.length) {
    showError(part, "Choose a file or a folder first.");
    form.querySelector("input[type=file]").focus();
    return;
  }
  state.abort = new AbortController();
  busy(part, true);
  try {
    const upload = await sendAll({
      api: form.dataset.api,
      token: form.elements.csrfmiddlewaretoken.value,
      picked,
      wishes: { model: form.elements.model.value, version: form.elements.version.value },
      signal: state.abort.signal,
      report: (sent, total) => report(part, sent, total),
    });
    window.location.assign(addressOf(upload));
  } catch (problem) {
    const isCancelled = problem.name === "AbortError";
    showError(part, isCancelled ? "Cancelled; nothing was published." : problem.message);
    busy(part, false);
  }
}

function busy(part, isBusy) {
  part("progress").hidden = !isBusy;
  part("cancel").hidden = !isBusy;
  part("submit").disabled = isBusy;
  if (isBusy) showError(part, "");
}

function report(part, sent, total) {
  const percent = total ? Math.floor((100 * sent) / total) : 100;
  part("progress").querySelector("progress").value = percent;
  part("progress-text").textContent = `${percent} % · ${size(sent)} of ${size(total)}`;
}
