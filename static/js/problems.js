// The number of problems in the tab: before its title, and in its icon.

const RADIUS = 5.5;
let whole = "";
let shown = 0;

const icon = () => document.querySelector("[data-favicon]");

// The icon with a disc and the number on it.
function counted(drawing, count) {
  const style = getComputedStyle(document.documentElement);
  const [disc, digit] = ["--bad", "--surface"].map((token) => style.getPropertyValue(token).trim());
  const text = count > 9 ? "9+" : String(count);
  const badge = `<circle cx="14" cy="6" r="${RADIUS}" fill="${disc}"/><text x="14" y="9" font-family="sans-serif" font-size="${text.length > 1 ? 7 : 9}" font-weight="700" text-anchor="middle" fill="${digit}">${text}</text>`;
  return `data:image/svg+xml,${encodeURIComponent(drawing.replace("</svg>", `${badge}</svg>`))}`;
}

async function draw(count) {
  const link = icon();
  if (!link) return;
  link.dataset.plain ??= link.getAttribute("href");
  if (!count) {
    link.href = link.dataset.plain;
    return;
  }
  whole ||= await fetch(link.dataset.plain).then((answer) => answer.text());
  if (count === shown) link.href = counted(whole, count);
}

export function showProblems(count) {
  const title = document.title.replace(/^\(\d+\) /, "");
  const wanted = count ? `(${count}) ${title}` : title;
  if (document.title !== wanted) document.title = wanted;
  if (count === shown) return;
  shown = count;
  // An icon that cannot be fetched is no reason to stop anything.
  draw(count).catch((error) => console.warn("the tab's icon could not be drawn", error));
}
