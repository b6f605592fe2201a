// What a person typed or chose for one input -> a tensor, or an Error that says how to mend it.

import { elementBytes, elementCount } from "../kserve.js";
import { imageLayout, pixelsOf, readImage, toInterleaved, toPlanes } from "./ctc.js";

export const SCALES = {
  unit: { label: "0 to 1", apply: (value) => value / 255 },
  signed: { label: "−1 to 1", apply: (value) => value / 127.5 - 1 },
  bytes: { label: "0 to 255", apply: (value) => value },
  imagenet: {
    label: "ImageNet mean and deviation",
    apply: (value, channel) => (value / 255 - [0.485, 0.456, 0.406][channel]) / [0.229, 0.224, 0.225][channel],
  },
};

export function parseShape(text, name) {
  const parts = text.replace(/[[\]\s]+/g, " ").trim().split(/[ ,]+/).filter(Boolean);
  const shape = parts.map(Number);
  if (shape.some((dim) => !Number.isInteger(dim) || dim < -1)) {
    throw new Error(`${name}: the shape "${text}" is not a list of whole numbers. Write it like 1, 3, 224, 224.`);
  }
  if (shape.filter((dim) => dim === -1).length > 1) {
    throw new Error(`${name}: only one dimension may stay -1; give the others a size.`);
  }
  return shape;
}

// Replaces the one -1 by what the number of elements leaves for it; checks the rest.
export function resolveShape(shape, count, name) {
  const open = shape.indexOf(-1);
  const fixed = elementCount(shape.filter((dim) => dim !== -1));
  if (open >= 0 && fixed > 0 && count % fixed === 0) {
    return shape.map((dim) => (dim === -1 ? count / fixed : dim));
  }
  if (open >= 0 || fixed !== count) {
    throw new Error(`${name}: shape [${shape.join(", ")}] needs ${open >= 0 ? `a multiple of ${fixed}` : fixed} elements, the data has ${count}.`);
  }
  return shape;
}

export function fromJson(text, { name, datatype, shape }) {
  let data;
  try {
    data = JSON.parse(text);
  } catch (error) {
    throw new Error(`${name}: the values are not JSON (${error.message}). Write a list such as [1, 2, 3]; text in double quotes.`);
  }
  const flat = [data].flat(Infinity);
  const wrong = flat.find((item) => !fits(item, datatype));
  if (wrong !== undefined) {
    throw new Error(`${name}: ${JSON.stringify(wrong)} is no ${datatype} value.${datatype === "BYTES" ? " Put text in double quotes." : ""}`);
  }
  return { name, datatype, shape: resolveShape(shape, flat.length, name), data: flat };
}

function fits(item, datatype) {
  if (datatype === "BYTES") return typeof item === "string";
  if (datatype === "BOOL") return typeof item === "boolean" || item === 0 || item === 1;
  if (typeof item !== "number") return false;
  return datatype.startsWith("FP") || datatype === "BF16" || Number.isInteger(item);
}

// A tensor of zeros or of random values in a range that fits the datatype; -1 becomes 1.
export function generated(kind, { name, datatype, shape }) {
  const resolved = shape.map((dim) => (dim === -1 ? 1 : dim));
  const count = elementCount(resolved);
  const random = () => (datatype.includes("INT") ? Math.floor(Math.random() * 100) : Math.random());
  const value = kind === "zeros" ? () => 0 : random;
  const data = Array.from({ length: count }, datatype === "BYTES" ? () => "" : value);
  return { name, datatype, shape: resolved, data: datatype === "BOOL" ? data.map((item) => item >= 0.5) : data, binary: true };
}

export async function fromFile(file, { name, datatype, shape }) {
  const bytes = new Uint8Array(await file.arrayBuffer());
  if (datatype === "BYTES") {
    return { name, datatype, shape: resolveShape(shape, 1, name), data: [bytes], binary: true };
  }
  const width = elementBytes(datatype);
  if (bytes.length % width) {
    throw new Error(`${name}: ${file.name} has ${bytes.length} bytes, no whole number of ${datatype} elements (${width} bytes each, little-endian).`);
  }
  const resolved = resolveShape(shape, bytes.length / width, name);
  return { name, datatype, shape: resolved, data: bytes, binary: "raw" };
}

export async function fromImage(file, { name, datatype, shape }, scaleName) {
  const isBatched = shape.length === 4;
  const layout = imageLayout(isBatched ? shape.slice(1) : shape);
  if (!layout) throw new Error(`${name}: shape [${shape.join(", ")}] does not look like an image.`);
  if (isBatched && ![1, -1].includes(shape[0])) {
    throw new Error(`${name}: one image fills a batch of 1, the shape says ${shape[0]}.`);
  }
  const image = await readImage(file);
  const width = layout.width === -1 ? image.width : layout.width;
  const height = layout.height === -1 ? image.height : layout.height;
  const { pixels } = pixelsOf(image, width, height);
  const values = tensorOf(pixels, width, height, layout, SCALES[scaleName]);
  const inner = layout.name === "NCHW" ? [layout.channels, height, width] : [height, width, layout.channels];
  const data = datatype === "FP32" ? values : Array.from(values, datatype.startsWith("FP") ? Number : Math.round);
  return { name, datatype, shape: isBatched ? [1, ...inner] : inner, data, binary: true };
}

function tensorOf(pixels, width, height, { name, channels }, { apply }) {
  const source = channels === 1 ? toGrey(pixels) : pixels;
  const order = channels === 1 ? [0] : [0, 1, 2];
  if (name === "NHWC") {
    const values = toInterleaved(source, width, height, { order, scale: Number });
    return values.map((value, at) => apply(value, at % channels));
  }
  const values = toPlanes(source, width, height, { order, scale: Number });
  return values.map((value, at) => apply(value, Math.floor(at / (width * height))));
}

function toGrey(pixels) {
  const grey = new Uint8ClampedArray(pixels.length);
  for (let at = 0; at < pixels.length; at += 4) {
    grey[at] = 0.299 * pixels[at] + 0.587 * pixels[at + 1] + 0.114 * pixels[at + 2];
  }
  return grey;
}
