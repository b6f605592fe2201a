// The features of a file-type model that looks at both ends of a file: the first block without
// leading white space, the last block without trailing white space, each cut or padded to a length.
// Rules after magika's features extraction v2.

export const DEFAULTS = { begin: 1024, end: 1024, block: 4096, padding: 256, minimum: 8 };

// What Python's bytes.strip() removes: tab, line feed, vertical tab, form feed, return, space.
function isSpace(byte) {
  return byte === 32 || (byte >= 9 && byte <= 13);
}

export function stripStart(bytes) {
  let at = 0;
  while (at < bytes.length && isSpace(bytes[at])) at += 1;
  return bytes.subarray(at);
}

export function stripEnd(bytes) {
  let end = bytes.length;
  while (end > 0 && isSpace(bytes[end - 1])) end -= 1;
  return bytes.subarray(0, end);
}

// first, last: Uint8Array, at most `block` bytes from either end. Returns Int32Array.
export function features(first, last, options = {}) {
  const { begin, end, padding } = { ...DEFAULTS, ...options };
  const result = new Int32Array(begin + end).fill(padding);
  const head = stripStart(first).subarray(0, begin);
  result.set(head, 0);
  const stripped = stripEnd(last);
  const tail = stripped.subarray(Math.max(0, stripped.length - end));
  result.set(tail, begin + end - tail.length);
  return result;
}

// Files too small for the model are named by rule: text if they are UTF-8, else unknown.
export function ruleFor(size, first, vector, options = {}) {
  const { minimum, padding } = { ...DEFAULTS, ...options };
  if (size === 0) return "empty";
  if (size >= minimum && vector[minimum - 1] !== padding) return null;
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(first);
    return "txt";
  } catch {
    return "unknown";
  }
}

// Reads only the ends of the file, however large it is.
export async function readEnds(file, options = {}) {
  const { block } = { ...DEFAULTS, ...options };
  const size = Math.min(block, file.size);
  const bytes = async (slice) => new Uint8Array(await slice.arrayBuffer());
  return { first: await bytes(file.slice(0, size)), last: await bytes(file.slice(file.size - size)) };
}
