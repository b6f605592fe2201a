// The live socket, one a page: connects, resumes after a loss, tells subscribers.
// subscribe({sample, event, reset, status}) returns an unsubscribe function. status() is called with
// {state: "connecting" | "live" | "stale" | "paused", at: Date of the last entry or null}.

const STALE_AFTER_MS = 6000;
const LONGEST_WAIT_MS = 15000;

const subscribers = new Set();
const seen = new Set();
let socket = null;
let lastId = null;
let lastAt = null;
let wait = 500;
let paused = false;
let timer = 0;
let watch = 0;
let state = "connecting";

function tell(name, value) {
  for (const subscriber of subscribers) subscriber[name]?.(value);
}

function setState(next) {
  state = next;
  tell("status", { state, at: lastAt });
}

function isNew(id) {
  if (seen.has(id)) return false;
  seen.add(id);
  if (seen.size > 2000) seen.delete(seen.values().next().value);
  return true;
}

function receive(message) {
  const entry = JSON.parse(message.data);
  if (entry.type === "reset") {
    tell("reset");
    return;
  }
  if (!isNew(entry.id)) return;
  lastId = entry.id;
  lastAt = new Date();
  if (paused) return;
  if (state !== "live") setState("live");
  tell(entry.type, entry.data);
}

function connect() {
  clearTimeout(timer);
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  socket = new WebSocket(`${scheme}//${location.host}/ws/live/`);
  socket.addEventListener("open", () => {
    wait = 500;
    socket.send(JSON.stringify({ resume: lastId }));
  });
  socket.addEventListener("message", receive);
  socket.addEventListener("close", (event) => {
    if (event.code === 4401 || event.code === 4403) {
      // No login or no right any more: asking again cannot help.
      subscribers.size && setState("stale");
      return;
    }
    if (subscribers.size) timer = setTimeout(connect, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  });
}

function check() {
  if (paused) return;
  const age = lastAt ? Date.now() - lastAt : Infinity;
  if (age > STALE_AFTER_MS && state === "live") setState("stale");
  else tell("status", { state, at: lastAt });
}

export function subscribe(subscriber) {
  subscribers.add(subscriber);
  if (!socket) {
    connect();
    watch = setInterval(check, 1000);
  }
  subscriber.status?.({ state: paused ? "paused" : state, at: lastAt });
  return () => {
    subscribers.delete(subscriber);
    if (subscribers.size) return;
    clearInterval(watch);
    clearTimeout(timer);
    socket?.close();
    socket = null;
  };
}

export function isPaused() {
  return paused;
}

export function setPaused(value) {
  paused = value;
  if (paused) {
    setState("paused");
    return;
  }
  setState(lastAt && Date.now() - lastAt < STALE_AFTER_MS ? "live" : "stale");
  // What came during the pause was not drawn.
  tell("reset");
}
