// Images into the tensors of text recognisers and image models, and greedy CTC decoding.

// Pixels (RGBA, Uint8ClampedArray) -> planes [channels, height, width], each value through `scale`.
// order: which of R (0), G (1), B (2) each plane takes.
export function toPlanes(pixels, width, height, { order = [0, 1, 2], scale = (value) => value / 255, planeWidth = width, padding = 0 } = {}) {
  const planes = new Float32Array(order.length * height * planeWidth).fill(padding);
  order.forEach((channel, plane) => {
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1) {
        planes[(plane * height + y) * planeWidth + x] = scale(pixels[4 * (y * width + x) + channel]);
      }
    }
  });
  return planes;
}

export function toInterleaved(pixels, width, height, { order = [0, 1, 2], scale = (value) => value / 255 } = {}) {
  const values = new Float32Array(width * height * order.length);
  for (let pixel = 0; pixel < width * height; pixel += 1) {
    order.forEach((channel, at) => {
      values[pixel * order.length + at] = scale(pixels[4 * pixel + channel]);
    });
  }
  return values;
}

// Width after scaling a line of text to `height`, at least `minimum`: a narrow tensor starves the
// recogniser of context.
export function lineWidth(width, height, target = 48) {
  return Math.max(1, Math.ceil((width / height) * target));
}

// scores: flat [steps, classes]; class 0 is the blank. Returns {text, confidence, characters}.
export function greedyDecode(scores, steps, classes, labels) {
  const characters = [];
  let previous = 0;
  for (let step = 0; step < steps; step += 1) {
    const { index, value } = best(scores, step * classes, classes);
    if (index !== 0 && index !== previous) {
      characters.push({ step, text: labels[index] ?? "\ufffd", score: value });
    }
    previous = index;
  }
  const total = characters.reduce((sum, { score }) => sum + score, 0);
  return {
    characters,
    text: characters.map(({ text }) => text).join(""),
    confidence: characters.length ? total / characters.length : 0,
  };
}

function best(scores, from, count) {
  let index = 0;
  for (let at = 1; at < count; at += 1) {
    if (scores[from + at] > scores[from + index]) index = at;
  }
  return { index, value: scores[from + index] };
}

// Which axes of a tensor without its batch axis are rows, columns and channels; null when the
// dims do not look like an image.
export function imageLayout(dims) {
  if (dims.length !== 3) return null;
  const isSide = (dim) => dim === -1 || dim >= 8;
  const isChannels = (dim) => dim === 1 || dim === 3;
  if (isChannels(dims[0]) && isSide(dims[1]) && isSide(dims[2])) {
    return { name: "NCHW", channels: dims[0], height: dims[1], width: dims[2] };
  }
  if (isChannels(dims[2]) && isSide(dims[0]) && isSide(dims[1])) {
    return { name: "NHWC", channels: dims[2], height: dims[0], width: dims[1] };
  }
  return null;
}

// Draws an image at a size on a canvas of its own and gives the pixels back.
export function pixelsOf(image, width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.fillStyle = "white";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, width, height);
  return { canvas, pixels: context.getImageData(0, 0, width, height).data };
}

export async function readImage(file) {
  try {
    return await createImageBitmap(file);
  } catch {
    throw new Error(`${file.name || "This file"} is not an image that the browser can read. Choose a PNG, JPEG or WebP.`);
  }
}

// A line of text drawn as an image, for people without one at hand.
export function drawLine(text) {
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const font = "34px system-ui, 'DejaVu Sans', sans-serif";
  context.font = font;
  canvas.width = Math.ceil(context.measureText(text).width) + 24;
  canvas.height = 56;
  const drawing = canvas.getContext("2d");
  drawing.fillStyle = "white";
  drawing.fillRect(0, 0, canvas.width, canvas.height);
  drawing.fillStyle = "black";
  drawing.font = font;
  drawing.textBaseline = "middle";
  drawing.fillText(text, 12, 29);
  return canvas;
}
