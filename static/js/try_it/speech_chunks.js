// Try-it view of a speech detector with memory: sound -> windows, the state of one fed into the
// next -> how likely speech is, over time.

import { clear, dropZone, el, percent, svg, table } from "./dom.js";
import { RATE, readWav, resample, voiceLike, windows } from "./wav.js";

const STEP = 512;
const LIMIT_SECONDS = 30;
const THRESHOLD = 0.5;

export function mount(root, { send, report, settle }) {
  const verdict = el("div", { class: "verdict", "aria-live": "polite" });
  const listen = async (name, samples) => {
    const cut = samples.subarray(0, LIMIT_SECONDS * RATE);
    if (cut.length < STEP) throw new Error(`${name} is shorter than ${STEP / RATE} s. Choose a longer sound.`);
    const probabilities = await detect(cut, send, (done, all) => {
      clear(verdict, el("p", { class: "muted" }, `${name}: window ${done} of ${all}`), el("progress", { max: all, value: done, "aria-label": "Windows sent" }));
    });
    settle(probabilities.length);
    clear(verdict, ...show(name, cut, probabilities, samples.length > cut.length));
  };
  const read = async (file) => {
    const { samples, rate } = await decode(file);
    await listen(file.name, resample(samples, rate));
  };
  root.append(
    dropZone({
      label: "Drop a WAV file here or choose one",
      hint: `Mixed to one channel at 16 kHz; the first ${LIMIT_SECONDS} s are sent, 32 ms a request.`,
      accept: "audio/*,.wav",
      onFiles: ([file]) => report(read(file), verdict),
    }),
    el("p", { class: "toolbar" },
      el("span", { class: "muted" }, "No recording at hand?"),
      el("button", { type: "button", class: "button small", onclick: () => report(listen("Voice-like sound", voiceLike()), verdict) }, "Voice-like sound"),
      el("button", { type: "button", class: "button small", onclick: () => report(listen("Hum of 100 Hz", hum()), verdict) }, "Hum"),
    ),
    verdict,
  );
}

async function decode(file) {
  const buffer = await file.arrayBuffer();
  try {
    return readWav(buffer);
  } catch (problem) {
    // Not WAV: the browser may know the format (MP3, Ogg, M4A).
    const context = new OfflineAudioContext(1, 1, RATE);
    const sound = await context.decodeAudioData(buffer).catch(() => {
      throw problem;
    });
    return { samples: sound.getChannelData(0), rate: sound.sampleRate };
  }
}

function hum() {
  return Float32Array.from({ length: 2 * RATE }, (_, index) => 0.2 * Math.sin((2 * Math.PI * 100 * index) / RATE));
}

export async function detect(samples, send, progress) {
  const chunks = windows(samples, STEP);
  const probabilities = [];
  let state = new Float32Array(2 * 128);
  for (const chunk of chunks) {
    const { outputs } = await send({
      inputs: [
        { name: "input", datatype: "FP32", shape: [1, chunk.length], data: chunk },
        { name: "state", datatype: "FP32", shape: [2, 1, 128], data: state },
        { name: "sr", datatype: "INT64", shape: [1], data: BigInt64Array.of(BigInt(RATE)) },
      ],
      outputs: [{ name: "output" }, { name: "stateN" }],
    }, { isQuiet: true });
    const named = Object.fromEntries(outputs.map((output) => [output.name, output.data]));
    state = Float32Array.from(named.stateN);
    probabilities.push(named.output[0]);
    if (probabilities.length % 8 === 0 || probabilities.length === chunks.length) progress(probabilities.length, chunks.length);
  }
  return probabilities;
}

// Stretches above the threshold, joined over gaps of up to 0.2 s, without clicks under 0.1 s:
// [[from, to]] in seconds.
export function stretches(probabilities, step = STEP / RATE) {
  const found = [];
  probabilities.forEach((value, index) => {
    if (value < THRESHOLD) return;
    const last = found.at(-1);
    if (last && index * step - last[1] <= 0.2) last[1] = (index + 1) * step;
    else found.push([index * step, (index + 1) * step]);
  });
  return found.filter(([from, to]) => to - from >= 0.1);
}

function show(name, samples, probabilities, wasCut) {
  const spoken = stretches(probabilities);
  const share = probabilities.filter((value) => value >= THRESHOLD).length / probabilities.length;
  const length = (samples.length / RATE).toFixed(1);
  const rows = spoken.map(([from, to]) => [from.toFixed(2), to.toFixed(2), (to - from).toFixed(2)]);
  const seconds = (text) => ({ text, num: true });
  return [
    el("p", { class: "verdict-word" }, spoken.length ? `Speech in ${percent(share)} of the time` : "No speech found"),
    el("p", { class: "muted" }, `${name} · ${length} s${wasCut ? ` (only the first ${LIMIT_SECONDS} s)` : ""} · ${probabilities.length} requests`),
    chart(samples, probabilities),
    spoken.length ? table("Stretches of speech", ["From, s", "To, s", "Length, s"].map(seconds), rows) : null,
  ];
}

function chart(samples, probabilities) {
  const width = 600;
  const height = 140;
  const line = probabilities.map((value, index) => `${((index + 0.5) / probabilities.length) * width},${height - value * height}`);
  const columns = Array.from({ length: width / 2 }, (_, column) => {
    const from = Math.floor((column / (width / 2)) * samples.length);
    const to = Math.floor(((column + 1) / (width / 2)) * samples.length);
    const peak = samples.subarray(from, to).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    return `M${2 * column} ${height / 2 - (peak * height) / 2}V${height / 2 + (peak * height) / 2}`;
  });
  const text = (x, y, words) => svg("text", { x, y, class: "chart-label" }, words);
  return el("figure", { class: "speech-chart" },
    svg("svg", { viewBox: `-34 -8 ${width + 44} ${height + 30}`, role: "img", "aria-label": "Probability of speech over time; the stretches are in the table below" },
      svg("path", { class: "chart-wave", d: columns.join("") }),
      [0, 0.5, 1].map((value) => svg("line", { class: "chart-grid", x1: 0, x2: width, y1: height * (1 - value), y2: height * (1 - value) })),
      [0, 0.5, 1].map((value) => text(-32, height * (1 - value) + 4, `${100 * value} %`)),
      svg("polyline", { class: "chart-line", points: line.join(" ") }),
      text(0, height + 18, "0 s"),
      text(width - 34, height + 18, `${(samples.length / RATE).toFixed(1)} s`),
    ),
    el("figcaption", { class: "muted" }, "Line: probability of speech. Grey: loudness."),
  );
}
