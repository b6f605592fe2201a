// KServe-v2 inference over HTTP with the binary tensor extension: builds request bodies, reads
// response bodies, and sends them to the console's own /v2 gateway (same origin, session cookie).

const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();
const WORKER = "X-Conch-Worker";
const UNREACHED = "The console did not answer. Check the connection and send again.";

// Datatype -> typed array of its wire form. FP16 and BF16 travel as 16-bit patterns; BYTES is apart.
const WIRE = {
  BOOL: Uint8Array, UINT8: Uint8Array, UINT16: Uint16Array, UINT32: Uint32Array,
  UINT64: BigUint64Array, INT8: Int8Array, INT16: Int16Array, INT32: Int32Array,
  INT64: BigInt64Array, FP32: Float32Array, FP64: Float64Array, FP16: Uint16Array,
  BF16: Uint16Array,
};

export class InferenceError extends Error {
  constructor(message, status, millis = 0) {
    super(message);
    this.name = "InferenceError";
    this.status = status;
    this.millis = millis;
  }
}

export function datatypes() {
  return [...Object.keys(WIRE), "BYTES"];
}

export function elementBytes(datatype) {
  return datatype === "BYTES" ? 0 : wireType(datatype).BYTES_PER_ELEMENT;
}

export function elementCount(shape) {
  return shape.reduce((product, dim) => product * Number(dim), 1);
}

function wireType(datatype) {
  const type = WIRE[datatype];
  if (!type) throw new InferenceError(`Datatype ${datatype} is unknown; use one of ${datatypes().join(", ")}.`, 0);
  return type;
}

// One number to an IEEE half: round to nearest even, overflow to infinity.
export function toHalf(value) {
  const bits = new Uint32Array(new Float32Array([value]).buffer)[0];
  const sign = (bits >>> 16) & 0x8000;
  const exponent = (bits >>> 23) & 0xff;
  const mantissa = bits & 0x7fffff;
  if (exponent === 0xff) return sign | 0x7c00 | (mantissa ? 0x200 : 0);
  const half = exponent - 127 + 15;
  if (half >= 31) return sign | 0x7c00;
  if (half < -10) return sign;
  const shift = half <= 0 ? 14 - half : 13;
  const full = half <= 0 ? mantissa | 0x800000 : mantissa | (half << 23);
  const rest = full & ((1 << shift) - 1);
  const middle = 1 << (shift - 1);
  let result = full >>> shift;
  if (rest > middle || (rest === middle && result & 1)) result += 1;
  return sign | result;
}

export function fromHalf(pattern) {
  const sign = pattern & 0x8000 ? -1 : 1;
  const exponent = (pattern >>> 10) & 0x1f;
  const fraction = pattern & 0x3ff;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function toBf16(value) {
  if (Number.isNaN(value)) return 0x7fc0;
  const bits = new Uint32Array(new Float32Array([value]).buffer)[0];
  return ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16) & 0xffff;
}

function fromBf16(pattern) {
  return new Float32Array(new Uint32Array([pattern << 16]).buffer)[0];
}

// Elements (numbers, booleans, strings, Uint8Array) -> the bytes of the binary extension.
export function packTensor(datatype, elements) {
  if (datatype === "BYTES") return packBytes(elements);
  const type = wireType(datatype);
  if (elements instanceof type) {
    return new Uint8Array(elements.buffer, elements.byteOffset, elements.byteLength);
  }
  const convert = converter(datatype);
  const packed = type.from(elements, convert);
  return new Uint8Array(packed.buffer);
}

function converter(datatype) {
  if (datatype === "FP16") return toHalf;
  if (datatype === "BF16") return toBf16;
  if (datatype === "BOOL") return (value) => (value ? 1 : 0);
  if (datatype === "INT64" || datatype === "UINT64") return (value) => BigInt(value);
  return Number;
}

function packBytes(elements) {
  const parts = Array.from(elements, (item) => (item instanceof Uint8Array ? item : ENCODER.encode(String(item))));
  const packed = new Uint8Array(parts.reduce((sum, part) => sum + 4 + part.length, 0));
  const view = new DataView(packed.buffer);
  let at = 0;
  for (const part of parts) {
    view.setUint32(at, part.length, true);
    packed.set(part, at + 4);
    at += 4 + part.length;
  }
  return packed;
}

// The bytes of the binary extension -> elements. Text where BYTES are UTF-8, else Uint8Array.
export function unpackTensor(datatype, bytes) {
  if (datatype === "BYTES") return unpackBytes(bytes);
  const type = wireType(datatype);
  if (bytes.length % type.BYTES_PER_ELEMENT) {
    throw new InferenceError(`${bytes.length} bytes are no whole number of ${datatype} elements.`, 0);
  }
  const values = new type(bytes.slice().buffer);
  if (datatype === "FP16") return Array.from(values, fromHalf);
  if (datatype === "BF16") return Array.from(values, fromBf16);
  if (datatype === "BOOL") return Array.from(values, Boolean);
  return values;
}

function unpackBytes(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const elements = [];
  let at = 0;
  while (at < bytes.length) {
    const length = at + 4 <= bytes.length ? view.getUint32(at, true) : Infinity;
    if (at + 4 + length > bytes.length) throw new InferenceError("A BYTES element ends behind its tensor.", 0);
    elements.push(textOrBytes(bytes.slice(at + 4, at + 4 + length)));
    at += 4 + length;
  }
  return elements;
}

function textOrBytes(bytes) {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(bytes);
  } catch {
    return bytes;
  }
}

// request: {id, parameters, inputs: [{name, datatype, shape, data}], outputs: [{name, classification}]}.
// `data` is JSON (nested lists) unless it is a typed array or a list marked with `binary: true`.
// Returns {headers, body}.
export function encodeRequest(request) {
  const blobs = [];
  const header = { inputs: request.inputs.map((input) => encodeInput(input, blobs)) };
  if (request.id) header.id = request.id;
  if (request.parameters) header.parameters = request.parameters;
  if (request.outputs?.length) header.outputs = request.outputs.map(encodeOutput);
  else if (request.binaryOutputs !== false) {
    header.parameters = { ...header.parameters, binary_data_output: true };
  }
  const json = ENCODER.encode(JSON.stringify(header));
  if (!blobs.length) return { headers: { "Content-Type": "application/json" }, body: json };
  const headers = {
    "Content-Type": "application/octet-stream",
    "Inference-Header-Content-Length": String(json.length),
  };
  return { headers, body: concat([json, ...blobs]) };
}

function encodeInput({ name, datatype, shape, data, binary, parameters }, blobs) {
  const input = { name, datatype, shape: shape.map(Number) };
  const mustPack = binary || ArrayBuffer.isView(data) || datatype === "FP16" || datatype === "BF16";
  if (!mustPack) return { ...input, ...(parameters && { parameters }), data };
  const elements = Array.isArray(data) ? data.flat(Infinity) : data;
  const blob = binary === "raw" ? data : packTensor(datatype, elements);
  blobs.push(blob);
  return { ...input, parameters: { ...parameters, binary_data_size: blob.length } };
}

function encodeOutput({ name, classification, binary = true }) {
  if (classification) return { name, parameters: { classification, binary_data: false } };
  return { name, parameters: { binary_data: binary } };
}

export function concat(parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// Response body -> {json, outputs: [{name, datatype, shape, data}]}; `data` is flat.
export function decodeResponse(body, headerLength) {
  const bytes = new Uint8Array(body);
  const length = headerLength ? Number(headerLength) : bytes.length;
  const json = JSON.parse(DECODER.decode(bytes.subarray(0, length)));
  let at = length;
  const outputs = (json.outputs ?? []).map((output) => {
    const size = output.parameters?.binary_data_size;
    if (size === undefined) return { ...output, data: [output.data ?? []].flat(Infinity) };
    if (at + size > bytes.length) throw new InferenceError(`Output ${output.name} ends behind the response.`, 0);
    const data = unpackTensor(output.datatype, bytes.subarray(at, at + size));
    at += size;
    return { ...output, data };
  });
  return { json, outputs };
}

// The page's own token: the cookie that belongs to it is closed to scripts.
export function csrfToken() {
  const shared = document.body.getAttribute("hx-headers");
  const field = document.querySelector('input[name="csrfmiddlewaretoken"]')?.value;
  return (shared && JSON.parse(shared)["X-CSRFToken"]) || field || "";
}

// Sends one request; resolves to {json, outputs, millis, status, worker}, rejects with InferenceError.
// `worker` asks for the one that answered before: the requests of a sequence belong together.
export async function infer(url, request, { signal, worker } = {}) {
  const { headers, body } = encodeRequest(request);
  if (worker) headers[WORKER] = worker;
  const started = performance.now();
  const response = await reach(url, {
    method: "POST",
    headers: { ...headers, "X-CSRFToken": csrfToken() },
    body,
    signal,
    credentials: "same-origin",
  });
  const bytes = await whole(response);
  const millis = performance.now() - started;
  if (!response.ok) throw new InferenceError(errorText(bytes, response.status), response.status, millis);
  const decoded = decodeResponse(bytes, response.headers.get("Inference-Header-Content-Length"));
  return { ...decoded, millis, status: response.status, worker: response.headers.get(WORKER) };
}

// The same request in the words of the generate extension: inputs by name, their elements flat.
export function streamBody({ inputs, parameters }) {
  const members = inputs.map(({ name, data, binary }) => {
    if (binary === "raw") throw new InferenceError(`${name}: a file cannot be sent to a model that answers more than once; give values.`, 0);
    return [name, Array.from(Array.isArray(data) ? data.flat(Infinity) : data, plainElement)];
  });
  return JSON.stringify({ ...Object.fromEntries(members), ...(parameters && { parameters }) });
}

function plainElement(value) {
  return typeof value === "bigint" ? Number(value) : value;
}

// One request, any number of answers: `onAnswer({json, millis})` as each comes. Resolves to
// {count, millis, status, worker}, rejects with InferenceError.
export async function inferStream(url, request, { signal, worker, onAnswer }) {
  const started = performance.now();
  const headers = { "Content-Type": "application/json", "X-CSRFToken": csrfToken(), ...(worker && { [WORKER]: worker }) };
  const response = await reach(url, { method: "POST", headers, body: streamBody(request), signal, credentials: "same-origin" });
  if (!response.ok) {
    const bytes = await response.arrayBuffer();
    throw new InferenceError(errorText(bytes, response.status), response.status, performance.now() - started);
  }
  let count = 0;
  for await (const json of events(response.body)) {
    if (json.error) throw new InferenceError(String(json.error), response.status, performance.now() - started);
    count += 1;
    onAnswer({ json, millis: performance.now() - started });
  }
  return { count, millis: performance.now() - started, status: response.status, worker: response.headers.get(WORKER) };
}

// A body may break off, as a connection may not come about.
async function whole(response) {
  try {
    return await response.arrayBuffer();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new InferenceError(UNREACHED, 0);
  }
}

async function reach(url, options) {
  try {
    return await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new InferenceError(UNREACHED, 0);
  }
}

// Server-sent events whose data are JSON, wherever the network cut them.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    const lines = (rest + (value ?? "")).split("\n");
    rest = done ? "" : lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield JSON.parse(line.slice(5));
    if (done) return;
  }
}

function errorText(bytes, status) {
  try {
    const { error } = JSON.parse(DECODER.decode(bytes));
    const text = typeof error === "string" ? error : error?.message;
    if (text) return text;
  } catch {
    // Not JSON: a page of a proxy, which says nothing a person could use.
  }
  if (status === 403) return "You may not send requests to this model. Ask for the operator role.";
  return `The server answered with status ${status} and no explanation.`;
}
