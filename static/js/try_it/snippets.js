// The request that was sent, as a command line and as a Python program.

const MOST_ELEMENTS = 20000;

export const TOKEN_NOTE = "Replace YOUR_TOKEN by an API token with the scope infer; make one under API tokens.";

function listed(input) {
  if (input.binary === "raw" || input.data?.some?.((item) => item instanceof Uint8Array)) return null;
  const flat = Array.from(input.data, (item) => (typeof item === "bigint" ? Number(item) : item));
  return flat.length <= MOST_ELEMENTS ? flat : null;
}

// null when the request cannot be written as JSON: file content, half floats, or too long.
export function asCurl(url, request) {
  const inputs = request.inputs.map(({ name, datatype, shape, ...rest }) => ({ name, datatype, shape, data: listed(rest) }));
  if (inputs.some(({ data, datatype }) => data === null || datatype === "FP16" || datatype === "BF16")) return null;
  const outputs = request.outputs?.map(({ name, classification }) =>
    classification ? { name, parameters: { classification } } : { name });
  const { parameters } = request;
  const body = JSON.stringify({ ...(parameters && { parameters }), inputs, ...(outputs && { outputs }) }).replaceAll("'", "'\\''");
  return [
    `curl -sS '${url}' \\`,
    `  -H 'Authorization: Bearer YOUR_TOKEN' \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d '${body}'`,
  ].join("\n");
}

// Models that answer more than once are asked by their generate_stream: one event for each answer.
export function asStreamCurl(url, body) {
  return [
    `curl -sSN '${url}' \\`,
    `  -H 'Authorization: Bearer YOUR_TOKEN' \\`,
    `  -H 'Content-Type: application/json' \\`,
    `  -d '${body.replaceAll("'", "'\\''")}'`,
  ].join("\n");
}

export function asStreamPython(url, body) {
  return `${[
    "import json",
    "import urllib.request",
    "",
    `body = json.loads(${quote(body)})`,
    `headers = {"Authorization": "Bearer YOUR_TOKEN", "Content-Type": "application/json"}`,
    `request = urllib.request.Request(${quote(url)}, json.dumps(body).encode(), headers)`,
    "with urllib.request.urlopen(request) as answers:",
    "    for line in answers:",
    `        if line.startswith(b"data:"):`,
    "            print(json.loads(line[5:]))",
  ].join("\n")}\n`;
}

const NUMPY = {
  BOOL: "bool", FP16: "float16", FP32: "float32", FP64: "float64", BYTES: "object_", BF16: "float32",
};

export function asPython(base, modelName, version, request) {
  const numpy = (datatype) => `np.${NUMPY[datatype] ?? datatype.toLowerCase()}`;
  const lines = [
    "import numpy as np",
    "import tritonclient.http as triton",
    "",
    `client = triton.InferenceServerClient(${quote(new URL(base).host)}${base.startsWith("https") ? ", ssl=True" : ""})`,
    "inputs = []",
  ];
  for (const input of request.inputs) {
    lines.push(
      `tensor = triton.InferInput(${quote(input.name)}, [${input.shape.join(", ")}], ${quote(input.datatype)})`,
      `tensor.set_data_from_numpy(${pythonData(input, numpy(input.datatype))})`,
      "inputs.append(tensor)",
    );
  }
  const outputs = (request.outputs ?? []).map(({ name, classification }) =>
    `triton.InferRequestedOutput(${quote(name)}${classification ? `, class_count=${classification}` : ""})`);
  lines.push(
    `outputs = [${outputs.join(", ")}]`,
    `headers = {"Authorization": "Bearer YOUR_TOKEN"}`,
    `result = client.infer(${quote(modelName)}, inputs, ${version ? `model_version=${quote(String(version))}, ` : ""}outputs=outputs, ${pythonSequence(request)}headers=headers)`,
    ...(request.outputs ?? []).map(({ name }) => `print(${quote(name)}, result.as_numpy(${quote(name)}))`),
  );
  return `${lines.join("\n")}\n`;
}

// The arguments of a request that belongs to a sequence.
function pythonSequence({ parameters = {} }) {
  const items = ["sequence_id", "sequence_start", "sequence_end"].filter((name) => name in parameters);
  return items.map((name) => `${name}=${pythonValue(parameters[name], name === "sequence_id" ? "" : "BOOL")}, `).join("");
}

function pythonData(input, dtype) {
  const values = listed(input);
  const shape = `[${input.shape.join(", ")}]`;
  if (values) {
    const items = values.map((value) => pythonValue(value, input.datatype));
    return `np.array([${items.join(", ")}], ${dtype}).reshape(${shape})`;
  }
  if (input.datatype === "BYTES") return `np.array([open("input.bin", "rb").read()], np.object_).reshape(${shape})`;
  return `np.fromfile("${input.name}.bin", ${dtype}).reshape(${shape})`;
}

function pythonValue(value, datatype) {
  if (datatype === "BYTES") return `${quote(String(value))}.encode()`;
  if (datatype === "BOOL") return value ? "True" : "False";
  if (Number.isNaN(value)) return "np.nan";
  if (Math.abs(value) === Infinity) return value > 0 ? "np.inf" : "-np.inf";
  return String(value);
}

function quote(text) {
  return JSON.stringify(text);
}
