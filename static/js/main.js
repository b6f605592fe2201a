// Binds behaviours: an element with data-behavior="a b" is handed to connect() of behaviors/a.js and
// behaviors/b.js. What connect returns is called when the element leaves the page. Where each
// behaviour's file lies stands in <meta name="behaviors">, because static files carry hashes.
// <html data-bound> stands while nothing in the page waits for its behaviours: whoever drives the page
// by script waits for it, since a click before then goes nowhere.

const ADDRESSES = JSON.parse(document.querySelector('meta[name="behaviors"]').content);

const bound = new Map();
// Elements whose behaviours are on their way.
let waiting = 0;
// htmx has put new elements into the page and says soon that they can be bound.
let isSettling = false;

async function bind(element) {
  if (bound.has(element)) return;
  bound.set(element, []);
  waiting += 1;
  try {
    await connectAll(element, bound.get(element));
  } finally {
    waiting -= 1;
    mark();
  }
}

async function connectAll(element, disconnects) {
  for (const name of element.dataset.behavior.split(/\s+/)) {
    if (!(name in ADDRESSES)) {
      console.error(`no behaviour is called ${name}`);
      continue;
    }
    const module = await import(ADDRESSES[name]);
    if (!element.isConnected) return;
    const disconnect = module.connect(element);
    if (disconnect) disconnects.push(disconnect);
  }
}

function bindAll(root) {
  if (root.matches?.("[data-behavior]")) bind(root);
  root.querySelectorAll("[data-behavior]").forEach(bind);
  mark();
}

function mark() {
  document.documentElement.toggleAttribute("data-bound", waiting === 0 && !isSettling);
}

function release() {
  for (const [element, disconnects] of bound) {
    if (element.isConnected) continue;
    bound.delete(element);
    disconnects.forEach((disconnect) => disconnect());
  }
}

bindAll(document);
// Whoever puts new elements into the page by hand says so.
document.addEventListener("conch:changed", (event) => {
  release();
  bindAll(event.target);
});
document.addEventListener("htmx:afterSwap", () => {
  isSettling = true;
  mark();
});
document.addEventListener("htmx:afterSettle", (event) => {
  isSettling = false;
  release();
  bindAll(event.target);
});
