// Keeps the [data-part] elements inside true: asks the server for them again every few seconds, and
// soon after an event. Only parts that changed are replaced; focus returns to the same link.
import { isPaused, subscribe } from "../live.js";
import { showProblems } from "../problems.js";

const EVERY_MS = 5000;
const SOON_MS = 400;

function focusedAddress(part) {
  const active = document.activeElement;
  return part.contains(active) ? active.getAttribute("href") || active.id || active.textContent : null;
}

function refocus(part, address) {
  for (const element of part.querySelectorAll("a, button, input, select, [tabindex]")) {
    if ([element.getAttribute("href"), element.id, element.textContent].includes(address)) {
      element.focus({ preventScroll: true });
      return;
    }
  }
}

function isBusy(part) {
  return part.querySelector("dialog[open], form :focus, details[open]") !== null;
}

function replace(part, fresh) {
  // Compared with what the server sent last, not with the page: charts and scripts change the page.
  if (part.dataset.sent === fresh.outerHTML) return;
  const address = focusedAddress(part);
  const sent = fresh.outerHTML;
  part.replaceChildren(...fresh.childNodes);
  part.className = fresh.className;
  for (const name in fresh.dataset) part.dataset[name] = fresh.dataset[name];
  part.dataset.sent = sent;
  part.dispatchEvent(new CustomEvent("conch:changed", { bubbles: true }));
  if (address) refocus(part, address);
}

export function connect(element) {
  const abort = new AbortController();
  let timer = 0;
  let running = false;
  // Something happened while the last answer was on its way: it may tell the time before.
  let again = false;

  async function reload() {
    clearTimeout(timer);
    if (running) {
      again = true;
      return;
    }
    running = true;
    again = false;
    try {
      if (!isPaused() && !document.hidden) await update();
    } catch (error) {
      if (abort.signal.aborted) return;
      console.warn("the page could not be brought up to date", error);
    } finally {
      running = false;
      if (!abort.signal.aborted) timer = setTimeout(reload, again ? SOON_MS : EVERY_MS);
    }
  }

  async function update() {
    const answer = await fetch(element.dataset.url, { signal: abort.signal, redirect: "manual" });
    // The session has ended: the page itself must go to the login.
    if (answer.type === "opaqueredirect") location.reload();
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const fresh of page.querySelectorAll("[data-part]")) {
      const part = element.querySelector(`[data-part="${fresh.dataset.part}"]`);
      if (part && !isBusy(part)) replace(part, fresh);
    }
    const problems = page.querySelector("[data-problems]")?.dataset.problems;
    if (problems !== undefined) showProblems(Number(problems));
  }

  function soon() {
    clearTimeout(timer);
    timer = setTimeout(reload, SOON_MS);
  }

  timer = setTimeout(reload, EVERY_MS);
  const unsubscribe = subscribe({ event: soon, reset: soon });
  return () => {
    abort.abort();
    clearTimeout(timer);
    unsubscribe();
  };
}
