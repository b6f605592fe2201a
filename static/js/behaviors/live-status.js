// "Live · updated 1 s ago", "Stale since 12:04:31", "Paused", and the Pause button.
import { isPaused, setPaused, subscribe } from "../live.js";

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });

function sentence(state, at) {
  if (state === "paused") return "Paused";
  if (state === "connecting") return "Connecting…";
  if (!at) return "No telemetry arrives";
  if (state === "stale") return `Stale since ${clock.format(at)}`;
  const seconds = Math.max(0, Math.round((Date.now() - at) / 1000));
  return `Live · updated ${seconds} s ago`;
}

export function connect(element) {
  const label = element.querySelector("[data-status]");
  const text = element.querySelector("[data-text]");
  const button = element.querySelector("[data-pause]");
  const born = Date.now();

  function show({ state, at }) {
    // A page just opened is as of its loading, not stale.
    if (state === "connecting" && Date.now() - born > 5000) state = "stale";
    const words = sentence(state, at);
    if (text.textContent !== words) text.textContent = words;
    label.classList.toggle("is-stale", state === "stale");
    label.classList.toggle("is-paused", state === "paused" || state === "connecting");
    document.documentElement.toggleAttribute("data-stale", state === "stale");
  }

  function toggle() {
    setPaused(!isPaused());
    button.textContent = isPaused() ? "Resume" : "Pause";
    button.setAttribute("aria-pressed", String(isPaused()));
  }

  button.hidden = false;
  button.addEventListener("click", toggle);
  return subscribe({ status: show });
}
