// The series behind the charts of a page: loaded once a URL, carried on by the live socket.
// The sums of a step are those of console/monitoring/series.py.
import { isPaused, subscribe } from "./live.js";
import { percentiles } from "./percentiles.js";

const stores = new Map();
// Steps wider than this are asked for again instead of being summed up in the browser.
const LIVE_STEP_S = 5;
const RELOAD_MS = 15000;
const RETRY_MS = 5000;
const LATE_S = 1.2;

class Step {
  constructor() {
    this.seconds = {};
    this.models = {};
    this.last = {};
  }

  add(sample, onlyModel) {
    const worker = sample.worker_id;
    this.seconds[worker] = (this.seconds[worker] ?? 0) + sample.interval_s;
    this.last[worker] = sample;
    for (const row of sample.models) {
      if (onlyModel && row.name !== onlyModel) continue;
      const model = (this.models[row.name] ??= { workers: {}, latency: {}, batches: {}, closings: {}, newest: {}, success: 0, queueUs: 0 });
      const counts = (model.workers[worker] ??= { requests: 0, inferences: 0, failures: 0, executions: 0 });
      counts.requests += row.success_count + row.failure_count;
      counts.inferences += row.inference_count;
      counts.failures += row.failure_count;
      counts.executions += row.execution_count;
      model.success += row.success_count;
      model.queueUs += row.queue_us * row.success_count;
      model.newest[`${worker} ${row.version}`] = row;
      addCounts(model.latency, row.latency_buckets);
      addCounts(model.batches, row.batch_sizes);
      addCounts(model.closings, row.close_reasons ?? {});
    }
  }

  lines() {
    const models = Object.entries(this.models).map(([name, model]) => [name, this.modelLines([model])]);
    const all = Object.values(this.models);
    const gauge = (field) => sum(all, (model) => now(model, field));
    const sequences = { sequence_slots: gauge("sequence_slots"), active_sequences: gauge("active_sequences"), backlog_sequences: gauge("backlog_sequences") };
    return {
      totals: { ...this.modelLines(all), ...sequences },
      models: Object.fromEntries(models),
      batch_sizes: this.perSecond(all.map((model) => model.batches)),
      close_reasons: this.perSecond(all.map((model) => model.closings)),
      workers: Object.fromEntries(Object.entries(this.last).map(([name, s]) => [name, { cpu_percent: s.cpu_percent, memory_bytes: s.memory_bytes }])),
      devices: this.deviceLines(),
    };
  }

  perSecond(counters) {
    const longest = Math.max(...Object.values(this.seconds));
    const whole = {};
    for (const counts of counters) addCounts(whole, counts);
    return Object.fromEntries(Object.entries(whole).map(([key, count]) => [key, count / longest]));
  }

  modelLines(models) {
    const rate = (field) => sum(models, (model) => sum(Object.entries(model.workers), ([name, counts]) => counts[field] / this.seconds[name]));
    const total = (field) => sum(models, (model) => sum(Object.values(model.workers), (counts) => counts[field]));
    const latency = {};
    for (const model of models) addCounts(latency, model.latency);
    const [p50, p95, p99] = percentiles(latency);
    const success = sum(models, (model) => model.success);
    const executions = total("executions");
    return {
      requests_per_s: rate("requests"),
      inferences_per_s: rate("inferences"),
      errors_per_s: rate("failures"),
      queued: sum(models, (model) => now(model, "queued")),
      queue_us: success ? sum(models, (model) => model.queueUs) / success : null,
      mean_batch: executions ? total("inferences") / executions : null,
      p50_us: p50,
      p95_us: p95,
      p99_us: p99,
    };
  }

  deviceLines() {
    const lines = {};
    for (const [worker, sample] of Object.entries(this.last)) {
      for (const device of sample.devices) {
        lines[`${worker} gpu-${device.index}`] = { utilization: device.utilization, memory_used_bytes: device.memory_used_bytes, power_watts: device.power_watts };
      }
    }
    return lines;
  }
}

function sum(items, value) {
  return items.reduce((total, item) => total + value(item), 0);
}

// A gauge of a model, over its workers and versions.
function now(model, field) {
  return sum(Object.values(model.newest), (row) => row[field] ?? 0);
}

function addCounts(into, counts) {
  for (const [key, count] of Object.entries(counts)) into[key] = (into[key] ?? 0) + count;
}

// Puts the numbers of one step at `index` into the arrays of the same names.
function write(target, values, index) {
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && typeof value === "object") {
      write((target[name] ??= {}), value, index);
    } else {
      const line = (target[name] ??= []);
      while (line.length < index) line.push(null);
      line[index] = value;
    }
  }
}

function eachLine(target, change) {
  for (const value of Object.values(target)) {
    if (Array.isArray(value)) change(value);
    else if (value && typeof value === "object") eachLine(value, change);
  }
}

const GROUPS = ["totals", "models", "batch_sizes", "close_reasons", "workers", "devices"];

class Store {
  constructor(url) {
    this.url = url;
    this.listeners = new Set();
    this.filter = new URL(url, location.href).searchParams;
    this.steps = new Map();
    this.startAfresh();
    this.unsubscribe = subscribe({ sample: (s) => this.add(s), event: (e) => this.mark(e), reset: () => this.startAfresh() });
    this.timer = setInterval(() => this.tick(), 1000);
  }

  startAfresh() {
    this.steps.clear();
    this.isBridged = false;
    this.load();
  }

  async load() {
    this.loadedAt = Date.now();
    try {
      const answer = await fetch(this.url, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      this.take(await answer.json());
    } catch (error) {
      for (const listener of this.listeners) listener(null, error);
    }
  }

  take(series) {
    this.series = series;
    this.length = series.times.length;
    // The server's clock counts; the browser's may be off.
    this.ahead = series.now - Date.now() / 1000;
    // Steps that began before this are not whole here. The server has them a little later: tick() asks.
    if (!this.isBridged) this.liveFrom = series.now;
    this.written = series.times.at(-1);
    this.carryOn();
    this.tell();
  }

  now() {
    return Date.now() / 1000 + this.ahead;
  }

  add(sample) {
    const { series } = this;
    if (!series || series.step_s > LIVE_STEP_S || isPaused()) return;
    const worker = this.filter.get("worker");
    if (worker && worker !== sample.worker_id) return;
    const time = Math.floor(sample.at / series.step_s) * series.step_s;
    if (time < this.liveFrom) return;
    const step = this.steps.get(time) ?? new Step();
    this.steps.set(time, step);
    step.add(sample, this.filter.get("model"));
  }

  mark(event) {
    if (!this.series || event.kind !== "model_state" || !["READY", "UNAVAILABLE"].includes(event.state)) return;
    const model = this.filter.get("model");
    if (model && model !== event.model) return;
    this.series.events.push({ at: event.at, model: event.model, version: event.version, state: event.reason === "unloaded" ? "UNLOADED" : event.state });
  }

  // Moves the steps that have ended into the series, and the window along. True: something is new.
  carryOn() {
    const { series } = this;
    // A step that still runs, or whose last samples are on their way, would show as a dip.
    const ended = this.now() - series.step_s - LATE_S;
    const ready = [...this.steps.keys()].filter((time) => time <= ended && time > this.written).sort((a, b) => a - b);
    for (const time of ready) {
      while (series.times.at(-1) < time) series.times.push(series.times.at(-1) + series.step_s);
      write(series, this.steps.get(time).lines(), series.times.indexOf(time));
      this.written = time;
    }
    if (ready.length) this.trim();
    return ready.length > 0;
  }

  trim() {
    const { series } = this;
    const surplus = Math.max(0, series.times.length - this.length);
    for (const group of GROUPS) {
      eachLine(series[group], (line) => {
        while (line.length < series.times.length) line.push(null);
        line.splice(0, surplus);
      });
    }
    series.times.splice(0, surplus);
    // Kept for a while: the next load may end before them.
    for (const time of this.steps.keys()) if (time < this.written - 20 * series.step_s) this.steps.delete(time);
  }

  tick() {
    if (document.hidden || isPaused()) return;
    if (!this.series || this.series.step_s > LIVE_STEP_S) {
      if (Date.now() - this.loadedAt > (this.series ? RELOAD_MS : RETRY_MS)) this.load();
    } else if (!this.isBridged && this.now() > this.liveFrom + 2 * this.series.step_s + LATE_S) {
      this.isBridged = true;
      this.load();
    } else if (this.carryOn()) {
      this.tell();
    } else if (Date.now() - this.loadedAt > RELOAD_MS && this.now() - this.written > 4 * this.series.step_s + LATE_S) {
      // The socket is away: the server may know more.
      this.load();
    }
  }

  tell() {
    for (const listener of this.listeners) listener(this.series, null);
  }
}

// follow(url, (series, error) => ...) -> stop function. Charts with one URL share one store.
export function follow(url, listener) {
  const store = stores.get(url) ?? new Store(url);
  stores.set(url, store);
  store.listeners.add(listener);
  if (store.series) listener(store.series, null);
  return () => {
    store.listeners.delete(listener);
    if (store.listeners.size) return;
    clearInterval(store.timer);
    store.unsubscribe();
    stores.delete(url);
  };
}
