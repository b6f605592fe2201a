// Sends files through /api/v1/uploads: in chunks, each at the offset where the server's file ends,
// so that a connection that breaks costs one chunk and not the upload.

const CHUNK_BYTES = 8 * 1024 * 1024;
const TRIES = 5;
const PAUSE_MS = 1000;

export async function sendAll({ api, token, picked, wishes, signal, report }) {
  const total = picked.reduce((sum, { file }) => sum + file.size, 0);
  const isSingle = picked.length === 1 && !picked[0].path.includes("/");
  const call = caller(token, signal);
  const upload = await call(api, "POST", {
    file_name: isSingle ? picked[0].path : "",
    bytes: total,
    ...wishes,
  });
  const address = `${api}/${upload.id}`;
  try {
    let sent = 0;
    for (const { path, file } of picked) {
      await sendFile({ address, call, path, file, report: (done) => report(sent + done, total) });
      sent += file.size;
    }
    return await call(`${address}/complete`, "POST", {});
  } catch (problem) {
    // The row would wait for the rest for days; the person starts again instead.
    fetch(address, { method: "DELETE", headers: { "X-CSRFToken": token } }).catch(() => {});
    throw problem;
  }
}

async function sendFile({ address, call, path, file, report }) {
  const url = `${address}/content?path=${encodeURIComponent(path)}`;
  let offset = 0;
  let tries = 0;
  do {
    const chunk = file.slice(offset, offset + CHUNK_BYTES);
    try {
      const answer = await call(url, "PATCH", chunk, { "Upload-Offset": String(offset) });
      offset = answer.offset;
      tries = 0;
      report(offset);
    } catch (problem) {
      if (problem.name === "AbortError") throw problem;
      if (problem.status === 409) {
        offset = problem.body.error.offset;
        continue;
      }
      tries += 1;
      if (problem.status || tries >= TRIES) throw problem;
      await new Promise((resolve) => setTimeout(resolve, PAUSE_MS * tries));
    }
  } while (offset < file.size);
}

function caller(token, signal) {
  return async (url, method, body, headers = {}) => {
    const isBlob = body instanceof Blob;
    const response = await fetch(url, {
      method,
      signal,
      body: isBlob ? body : JSON.stringify(body),
      headers: {
        "X-CSRFToken": token,
        "Content-Type": isBlob ? "application/octet-stream" : "application/json",
        Accept: "application/json",
        ...headers,
      },
    });
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return answer;
    const text = answer.error?.message ?? `The server answered with status ${response.status}.`;
    throw Object.assign(new Error(text), { status: response.status, body: answer });
  };
}
