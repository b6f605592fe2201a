// The models list: choosing several, and the dialog that names what loading or unloading does.
// While nothing is chosen the list is fetched again, sooner while models are on their way (data-busy).

import { isPaused } from "../live.js";

const BUSY_MS = 2000;
const CALM_MS = 5000;

export function connect(list) {
  const part = (name) => list.querySelector(`[data-part="${name}"]`);
  const boxes = [...list.querySelectorAll('[data-part="one"]')];
  const isQuiet = () => !document.hidden && !isPaused() && boxes.every((box) => !box.checked) && !list.contains(document.activeElement);
  const timer = setInterval(() => isQuiet() && refresh(list), list.dataset.busy === undefined ? CALM_MS : BUSY_MS);
  // A choice made while a fresh list was on its way would be lost with the old one.
  list.addEventListener("htmx:beforeSwap", ({ detail }) => {
    if (detail.requestConfig.elt === list && !isQuiet()) detail.shouldSwap = false;
  });
  if (!part("dialog")) return () => clearInterval(timer);
  const chosen = () => boxes.filter((box) => box.checked);
  const update = () => {
    const count = chosen().length;
    part("all").checked = count > 0 && count === boxes.length;
    part("all").indeterminate = count > 0 && count < boxes.length;
    part("chosen").textContent = count ? `${count} chosen` : "Tick models to load or unload them together";
  };
  const open = (event) => {
    const action = event.target.closest("[data-action]").dataset.action;
    if (!chosen().length) {
      part("chosen").textContent = `Nothing to ${action}: tick at least one model first`;
      boxes[0]?.focus();
      return;
    }
    fillDialog(part, action, chosen());
    part("dialog").showModal();
  };
  list.addEventListener("change", (event) => {
    if (event.target === part("all")) boxes.forEach((box) => (box.checked = event.target.checked));
    update();
  });
  list.querySelectorAll('[data-part="open"]').forEach((button) => button.addEventListener("click", open));
  part("cancel").addEventListener("click", () => part("dialog").close());
  update();
  return () => clearInterval(timer);
}

function fillDialog(part, action, boxes) {
  const count = boxes.length;
  const models = count === 1 ? boxes[0].value : `${count} models`;
  const queued = boxes.reduce((sum, box) => sum + Number(box.dataset.queued), 0);
  const served = boxes.filter((box) => box.dataset.served !== undefined).length;
  const confirm = part("confirm");
  part("title").textContent = `${action === "load" ? "Load" : "Unload"} ${models}?`;
  part("names").textContent = boxes.map((box) => box.value).join(", ");
  part("consequence").textContent = action === "load" ? loading(served) : unloading(queued);
  confirm.value = action;
  confirm.textContent = `${action === "load" ? "Load" : "Unload"} ${models}`;
  confirm.className = `button ${action === "load" ? "primary" : "danger"}`;
}

function loading(served) {
  const first = "Each is read from the repository and warmed up on every worker.";
  return served ? `${first} ${served} of them are served now and go on answering until their new copies are warm.` : first;
}

function unloading(queued) {
  const waiting = queued
    ? `${queued} ${queued === 1 ? "request waits" : "requests wait"} in their queues and will be finished first.`
    : "No request waits in their queues now.";
  return `Requests to them will fail from then on. ${waiting} The files stay in the repository.`;
}

function refresh(list) {
  if (list.isConnected) window.htmx?.ajax("GET", location.href, { source: list, target: list, swap: "outerHTML" });
}
