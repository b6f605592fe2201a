// Field and enum names at the cursor, from the schema of the message that encloses it.
// schema: {root, messages: {type: {field: {kind, message, values, is_repeated}}}, parameters}, where
// `parameters` has the keys that each backend or platform reads, and under "" those of every one.

// The names of the fields whose braces are open at the end of `text`, outermost first; null marks
// an element of a list that has no name of its own.
export function enclosingFields(text) {
  const stack = [];
  let name = null;
  const tokens = /#[^\n]*|"(?:\\.|[^"\\\n])*"?|'(?:\\.|[^'\\\n])*'?|[A-Za-z_]\w*|[{}[\]<>:,;]/g;
  for (const [token] of text.matchAll(tokens)) {
    if (/^[A-Za-z_]/.test(token)) name = token;
    else if ("{[<".includes(token)) {
      stack.push({ name, open: token });
      name = null;
    } else if ("}]>".includes(token)) {
      stack.pop();
      name = null;
    }
  }
  return stack.map((level) => level.name).filter((level) => level !== null);
}

export function messageAt(schema, text) {
  let message = schema.root;
  for (const name of enclosingFields(text)) {
    const field = schema.messages[message]?.[name];
    if (!field?.message) return null;
    message = field.message;
  }
  return message;
}

// The field whose text is open at the end of `text`: null outside of one, "" where none is told.
function openText(text) {
  const line = text.slice(text.lastIndexOf("\n") + 1);
  let open = "";
  for (const [token] of line.matchAll(/#|\\.|["']/g)) {
    if (token === open) open = "";
    else if (!open && token === "#") return null;
    else if (!open && token.length === 1) open = token;
  }
  if (!open) return null;
  return /([A-Za-z_]\w*)\s*:\s*\[?\s*(?:(?:"[^"]*"|'[^']*')\s*,\s*)*["'][^"']*$/.exec(line)?.[1] ?? "";
}

// The keys of `parameters { key: … }` that the backend of the config reads.
function parameterKeys(schema, whole) {
  const named = [...whole.matchAll(/^[^#\n]*?\b(?:backend|platform)\s*:\s*["']([^"'\n]+)/gm)].map((match) => match[1]);
  const known = named.find((name) => Object.hasOwn(schema.parameters, name));
  return schema.parameters[known ?? ""];
}

function fieldsAt(schema, text, whole) {
  const message = messageAt(schema, text);
  const fields = message && (schema.messages[message] ?? {});
  if (!fields?.key || !schema.parameters || enclosingFields(text).join() !== "parameters") return fields;
  return { ...fields, key: { ...fields.key, values: parameterKeys(schema, whole) } };
}

// `text` ends at the cursor; `whole` is all there is.
export function completionsAt(schema, text, whole = text) {
  const fields = fieldsAt(schema, text, whole);
  if (!fields) return [];
  const name = openText(text);
  if (name !== null) return valuesOf(fields[name] ?? {});
  const value = /([A-Za-z_]\w*)\s*:\s*\[?\s*(?:[\w-]+\s*,\s*)*\w*$/.exec(text);
  if (value && fields[value[1]]) return valuesOf(fields[value[1]], fields[value[1]].kind === "string" ? '"' : "");
  return Object.entries(fields).map(([name, field]) => ({
    caption: name,
    value: name,
    snippet: field.message ? `${name} {\n  $0\n}` : field.kind === "string" ? `${name}: "$0"` : `${name}: `,
    meta: `${field.is_repeated ? "list of " : ""}${field.message ? "message" : field.kind}`,
  }));
}

function valuesOf(field, quote = "") {
  const values = field.kind === "bool" ? ["true", "false"] : field.values ?? [];
  return values.map((value) => ({ caption: value, value: quote + value + quote, meta: field.kind }));
}

export function completer(schema) {
  return {
    identifierRegexps: [/[\w.]/],
    getCompletions(editor, session, position, prefix, callback) {
      const lines = session.getLines(0, position.row);
      const last = lines[position.row].slice(0, position.column - prefix.length);
      callback(null, completionsAt(schema, [...lines.slice(0, position.row), last].join("\n"), session.getValue()));
    },
  };
}
