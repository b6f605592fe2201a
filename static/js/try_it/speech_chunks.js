// Try-it view of a speech detector with memory: sound -> windows, sent as one sequence to a model that
// keeps its state itself -> how likely speech is, over time, drawn while the answers come.

import { clear, dropZone, el, percent, svg, table } from "./dom.js";
import { RATE, readWav, resample, voiceLike, windows } from "./wav.js";

const STEP = 512;
const LIMIT_SECONDS = 30;
const THRESHOLD = 0.5;
const WIDTH = 600;
const HEIGHT = 140;

export function mount(root, { send, report, settle }) {
  const verdict = el("div", { class: "verdict" });
  let latest = 0;
  const listen = async (name, samples) => {
    const cut = samples.subarray(0, LIMIT_SECONDS * RATE);
    if (cut.length < STEP) throw new Error(`${name} is shorter than ${STEP / RATE} s. Choose a longer sound.`);
    latest += 1;
    const own = latest;
    const isCurrent = () => own === latest;
    const sound = { name, samples: cut, wasCut: samples.length > cut.length };
    const drawing = draw(sound);
    clear(verdict, ...drawing.parts);
    const probabilities = await detect(cut, send, { onProbability: drawing.add, isCurrent });
    if (!isCurrent()) return;
    settle(probabilities.length);
    clear(verdict, ...drawing.conclude(probabilities));
  };
  const read = async (file) => {
    const { samples, rate } = await decode(file);
    await listen(file.name, resample(samples, rate));
  };
  root.append(
    dropZone({
      label: "Drop a WAV file here or choose one",
      hint: `Mixed to one channel at 16 kHz; the first ${LIMIT_SECONDS} s are sent, 32 ms a request, as one sequence.`,
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

// One sequence: the first window starts it, the last one ends it, and so does the next one after
// somebody has lost interest.
export async function detect(samples, send, { onProbability, isCurrent = () => true }) {
  const chunks = windows(samples, STEP);
  const sequence = 1 + Math.floor(Math.random() * (Number.MAX_SAFE_INTEGER - 1));
  const probabilities = [];
  let worker;
  let isWanted = true;
  for (const [index, chunk] of chunks.entries()) {
    isWanted = isCurrent();
    const answer = await send({
      parameters: {
        sequence_id: sequence,
        sequence_start: index === 0,
        sequence_end: !isWanted || index === chunks.length - 1,
      },
      inputs: [
        { name: "input", datatype: "FP32", shape: [1, chunk.length], data: chunk },
        { name: "sr", datatype: "INT64", shape: [1], data: BigInt64Array.of(BigInt(RATE)) },
      ],
      outputs: [{ name: "output" }],
    }, { isQuiet: true, worker });
    if (!isWanted) break;
    ({ worker } = answer);
    probabilities.push(answer.outputs[0].data[0]);
    onProbability(probabilities.at(-1), probabilities.length, chunks.length);
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

// What is shown while the answers come, and when they are all there.
function draw({ name, samples, wasCut }) {
  const length = (samples.length / RATE).toFixed(1);
  const word = el("p", { class: "verdict-word", "aria-live": "polite" }, "Listening …");
  const note = el("p", { class: "muted" }, name);
  const { figure, line } = chart(samples);
  const points = [];
  const add = (value, done, all) => {
    points.push(`${((done - 0.5) / all) * WIDTH},${HEIGHT - value * HEIGHT}`);
    line.setAttribute("points", points.join(" "));
    note.textContent = `${name} · ${((done * STEP) / RATE).toFixed(1)} of ${length} s`;
  };
  const conclude = (probabilities) => {
    const spoken = stretches(probabilities);
    const share = probabilities.filter((value) => value >= THRESHOLD).length / probabilities.length;
    const rows = spoken.map(([from, to]) => [from.toFixed(2), to.toFixed(2), (to - from).toFixed(2)]);
    const seconds = (text) => ({ text, num: true });
    word.textContent = spoken.length ? `Speech in ${percent(share)} of the time` : "No speech found";
    note.textContent = `${name} · ${length} s${wasCut ? ` (only the first ${LIMIT_SECONDS} s)` : ""} · ${probabilities.length} requests`;
    const found = spoken.length ? table("Stretches of speech", ["From, s", "To, s", "Length, s"].map(seconds), rows) : null;
    return [word, note, figure, found];
  };
  return { parts: [word, note, figure], add, conclude };
}

function chart(samples) {
  const columns = Array.from({ length: WIDTH / 2 }, (_, column) => {
    const from = Math.floor((column / (WIDTH / 2)) * samples.length);
    const to = Math.floor(((column + 1) / (WIDTH / 2)) * samples.length);
    const peak = samples.subarray(from, to).reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    return `M${2 * column} ${HEIGHT / 2 - (peak * HEIGHT) / 2}V${HEIGHT / 2 + (peak * HEIGHT) / 2}`;
  });
  const text = (x, y, words) => svg("text", { x, y, class: "chart-label" }, words);
  const line = svg("polyline", { class: "chart-line", points: "" });
  const figure = el("figure", { class: "speech-chart" },
    svg("svg", { viewBox: `-34 -8 ${WIDTH + 44} ${HEIGHT + 30}`, role: "img", "aria-label": "Probability of speech over time; the stretches are in the table below" },
      svg("path", { class: "chart-wave", d: columns.join("") }),
      [0, 0.5, 1].map((value) => svg("line", { class: "chart-grid", x1: 0, x2: WIDTH, y1: HEIGHT * (1 - value), y2: HEIGHT * (1 - value) })),
      [0, 0.5, 1].map((value) => text(-32, HEIGHT * (1 - value) + 4, `${100 * value} %`)),
      line,
      text(0, HEIGHT + 18, "0 s"),
      text(WIDTH - 34, HEIGHT + 18, `${(samples.length / RATE).toFixed(1)} s`),
    ),
    el("figcaption", { class: "muted" }, "Line: probability of speech. Grey: loudness."),
  );
  return { figure, line };
}
