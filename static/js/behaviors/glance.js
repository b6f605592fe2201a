// Keeps the counts of the menu, and the number of problems in the tab, true while a page is open.
import { showProblems } from "../problems.js";

const EVERY_MS = 10_000;
// The page itself comes first.
const FIRST_MS = 1000;

export function connect(element) {
  const abort = new AbortController();

  async function look() {
    if (document.hidden) return;
    const answer = await fetch(element.dataset.url, { signal: abort.signal, redirect: "manual" });
    if (!answer.ok) return;
    const { problems, counts } = await answer.json();
    showProblems(problems);
    for (const place of element.querySelectorAll("[data-count]")) {
      const text = counts[place.dataset.count] ? String(counts[place.dataset.count]) : "";
      if (place.textContent !== text) place.textContent = text;
    }
  }

  // The web process restarts, the network is away: the next look tells.
  const quietly = () => look().catch(() => {});
  const timer = setInterval(quietly, EVERY_MS);
  document.addEventListener("visibilitychange", quietly, { signal: abort.signal });
  const first = setTimeout(quietly, FIRST_MS);
  return () => {
    abort.abort();
    clearTimeout(first);
    clearInterval(timer);
  };
}
