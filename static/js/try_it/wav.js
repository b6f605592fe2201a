// Sound for speech models: reads WAV and other files into 16 kHz mono, and makes test signals.

export const RATE = 16000;

// PCM of 8, 16, 24 or 32 bits and 32-bit float, any rate and channel count -> {samples, rate}.
export function readWav(buffer) {
  const view = new DataView(buffer);
  const tag = (at) => String.fromCharCode(...new Uint8Array(buffer, at, 4));
  if (buffer.byteLength < 12 || tag(0) !== "RIFF" || tag(8) !== "WAVE") {
    throw new Error("This is not a WAV file: it does not start with RIFF and WAVE. Choose a .wav file.");
  }
  let format = null;
  for (let at = 12; at + 8 <= buffer.byteLength; ) {
    const size = view.getUint32(at + 4, true);
    if (tag(at) === "fmt ") format = readFormat(view, at + 8, size);
    if (tag(at) === "data") {
      if (!format) break;
      const length = Math.min(size, buffer.byteLength - at - 8);
      return { samples: readSamples(view, at + 8, length, format), rate: format.rate };
    }
    at += 8 + size + (size & 1);
  }
  throw new Error("This WAV file has no sound: its fmt or data part is missing.");
}

function readFormat(view, at, size) {
  const code = view.getUint16(at, true);
  const extended = code === 0xfffe && size >= 26 ? view.getUint16(at + 24, true) : code;
  const format = {
    isFloat: extended === 3,
    channels: view.getUint16(at + 2, true),
    rate: view.getUint32(at + 4, true),
    bits: view.getUint16(at + 14, true),
  };
  const isKnown = format.isFloat ? format.bits === 32 : extended === 1 && [8, 16, 24, 32].includes(format.bits);
  if (!isKnown || !format.channels || !format.rate) {
    throw new Error(`This WAV file is coded as format ${extended} with ${format.bits} bits. Save it as 16-bit PCM.`);
  }
  return format;
}

function readSamples(view, start, length, { isFloat, channels, bits }) {
  const width = bits / 8;
  const read = {
    8: (at) => (view.getUint8(at) - 128) / 128,
    16: (at) => view.getInt16(at, true) / 32768,
    24: (at) => ((view.getInt8(at + 2) << 16) | view.getUint16(at, true)) / 8388608,
    32: (at) => (isFloat ? view.getFloat32(at, true) : view.getInt32(at, true) / 2147483648),
  }[bits];
  const frames = Math.floor(length / (width * channels));
  const mono = new Float32Array(frames);
  for (let frame = 0; frame < frames; frame += 1) {
    let sum = 0;
    for (let channel = 0; channel < channels; channel += 1) {
      sum += read(start + (frame * channels + channel) * width);
    }
    mono[frame] = sum / channels;
  }
  return mono;
}

// Linear interpolation, after a box filter where the rate goes down so that high tones do not fold.
export function resample(samples, from, to = RATE) {
  if (from === to) return samples;
  const ratio = from / to;
  const source = ratio > 1 ? smooth(samples, Math.round(ratio)) : samples;
  const result = new Float32Array(Math.floor(samples.length / ratio));
  for (let index = 0; index < result.length; index += 1) {
    const at = index * ratio;
    const left = Math.floor(at);
    const right = Math.min(left + 1, source.length - 1);
    result[index] = source[left] + (source[right] - source[left]) * (at - left);
  }
  return result;
}

function smooth(samples, width) {
  const result = new Float32Array(samples.length);
  let sum = 0;
  for (let index = 0; index < samples.length; index += 1) {
    sum += samples[index];
    if (index >= width) sum -= samples[index - width];
    result[index] = sum / Math.min(width, index + 1);
  }
  return result;
}

// A voice-like sound between silences: a pulse train of falling pitch through three resonances,
// cut into syllables. Not speech, but close enough for a detector to hear a voice.
export function voiceLike(seconds = 4, rate = RATE) {
  const samples = new Float32Array(seconds * rate);
  const vowels = [[730, 1090, 2440], [270, 2290, 3010], [570, 840, 2410], [530, 1840, 2480]];
  let phase = 0;
  let memory = [0, 0, 0, 0, 0, 0];
  for (let index = 0; index < samples.length; index += 1) {
    const at = index / rate;
    const isVoiced = at % 2 > 0.6 && at % 2 < 1.8;
    const pitch = 145 - 25 * (at % 2) + 5 * Math.sin(2 * Math.PI * 5 * at);
    phase += pitch / rate;
    const pulse = phase >= 1 ? 1 : 0;
    phase %= 1;
    const syllable = Math.max(0, Math.sin(Math.PI * ((at * 4) % 1))) ** 0.5;
    const formants = vowels[Math.floor(at * 4) % vowels.length];
    let sound = isVoiced ? pulse * syllable : 0;
    memory = [...memory];
    formants.forEach((frequency, order) => {
      const radius = Math.exp((-Math.PI * 90) / rate);
      const turn = 2 * radius * Math.cos((2 * Math.PI * frequency) / rate);
      const out = sound * 0.35 + turn * memory[2 * order] - radius * radius * memory[2 * order + 1];
      memory[2 * order + 1] = memory[2 * order];
      memory[2 * order] = out;
      sound = out;
    });
    samples[index] = sound;
  }
  return normalise(samples, 0.5);
}

function normalise(samples, peak) {
  const loudest = samples.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-9);
  return samples.map((value) => (value * peak) / loudest);
}

// Overlapping windows for a model with memory: `context` samples of the past and `step` new ones.
export function windows(samples, step = 512, context = 64) {
  const count = Math.ceil(samples.length / step);
  const padded = new Float32Array(context + count * step);
  padded.set(samples, context);
  return Array.from({ length: count }, (_, index) => padded.slice(index * step, index * step + context + step));
}
