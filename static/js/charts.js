// What each chart shows: a name -> the lines it takes from a series, their scale and their unit.
// {lines: [{name, values}], unit, log, percent} or, for a heat map, {rows: [{name, values}], unit}.

const MOST_LINES = 6;

function scaled(values, factor) {
  return values.map((value) => (value === null ? null : value * factor));
}

function weight(values) {
  return values.reduce((total, value) => total + (value ?? 0), 0);
}

// One line a model, the busiest first; what does not fit is left out and said so.
function byModel(series, field, factor = 1) {
  const rows = Object.entries(series.models).map(([name, lines]) => ({ name, values: scaled(lines[field] ?? [], factor) }));
  rows.sort((a, b) => weight(b.values) - weight(a.values) || a.name.localeCompare(b.name));
  // Of many models the idle ones would only fill the legend.
  const busy = rows.filter((row) => weight(row.values) > 0);
  if (rows.length > MOST_LINES && !busy.length) return { lines: [{ ...rows[0], name: `all ${rows.length} models` }], left: 0 };
  const lines = (rows.length > MOST_LINES ? busy : rows).slice(0, MOST_LINES);
  return { byModel: true, lines, left: rows.length - lines.length };
}

function byName(group, field, factor = 1) {
  return { lines: Object.entries(group).map(([name, lines]) => ({ name, values: scaled(lines[field] ?? [], factor) })).slice(0, MOST_LINES) };
}

function latency(series) {
  const lines = ["p50", "p95", "p99"].map((name) => ({ name, values: scaled(series.totals[`${name}_us`], 0.001) }));
  return { lines, unit: "ms", marks: true };
}

// Why batches closed, the most frequent first; what each name means stands on the Statistics tab.
function closings(series) {
  const rows = Object.entries(series.close_reasons).map(([name, values]) => ({ name: name.replaceAll("_", " "), values }));
  rows.sort((a, b) => weight(b.values) - weight(a.values) || a.name.localeCompare(b.name));
  return { lines: rows.slice(0, MOST_LINES), left: Math.max(0, rows.length - MOST_LINES), unit: "/s" };
}

function sequences({ totals }) {
  const lines = { "in use": totals.active_sequences, slots: totals.sequence_slots, "waiting for a slot": totals.backlog_sequences };
  return { lines: Object.entries(lines).map(([name, values]) => ({ name, values })), unit: "" };
}

export const CHARTS = {
  "throughput-total": (s) => ({ lines: [{ name: "inferences", values: s.totals.inferences_per_s }], unit: "/s" }),
  throughput: (s) => ({ ...byModel(s, "inferences_per_s"), unit: "/s" }),
  errors: (s) => ({ ...byModel(s, "errors_per_s"), unit: "/s" }),
  latency,
  "latency-log": (s) => ({ ...latency(s), log: true }),
  queued: (s) => ({ ...byModel(s, "queued"), unit: "" }),
  "queue-time": (s) => ({ ...byModel(s, "queue_us", 0.001), unit: "ms" }),
  "batch-sizes": (s) => ({ rows: Object.entries(s.batch_sizes).sort((a, b) => Number(a[0]) - Number(b[0])).map(([name, values]) => ({ name, values })), unit: "/s" }),
  closings,
  sequences,
  cpu: (s) => ({ ...byName(s.workers, "cpu_percent"), unit: "%" }),
  memory: (s) => ({ ...byName(s.workers, "memory_bytes", 1e-9), unit: "GB" }),
  "gpu-busy": (s) => ({ ...byName(s.devices, "utilization", 100), unit: "%", percent: true }),
  "gpu-memory": (s) => ({ ...byName(s.devices, "memory_used_bytes", 1e-9), unit: "GB" }),
  "gpu-power": (s) => ({ ...byName(s.devices, "power_watts"), unit: "W" }),
};

export function short(value) {
  if (value === null || value === undefined) return "—";
  const size = Math.abs(value);
  const digits = Number.isInteger(value) || size >= 100 ? 0 : size >= 10 ? 1 : 2;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// One sentence a line, for readers who do not see the drawing.
export function summarize({ lines, rows, unit, left }) {
  const parts = (lines ?? rows ?? []).map(({ name, values }) => {
    const known = values.filter((value) => value !== null);
    if (!known.length) return { name, text: "no data" };
    const now = known.at(-1);
    return { name, text: `${short(now)}${unit ? ` ${unit}` : ""}`, low: Math.min(...known), high: Math.max(...known) };
  });
  return { parts, left: left ?? 0 };
}
