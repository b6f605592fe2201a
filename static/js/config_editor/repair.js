// Makes the repair of a finding: one edit of the text, by lines and columns that count from 1 in
// characters. The editor counts in UTF-16 units, so columns are translated with the line at hand.

export function repairOf(button) {
  const { line, column, endLine, endColumn, text } = button.dataset;
  return { line: Number(line), column: Number(column), endLine: Number(endLine), endColumn: Number(endColumn), text };
}

// UTF-16 index within `line` of a column that counts characters.
export function unitIndex(line, column) {
  return [...line].slice(0, column - 1).join("").length;
}

// Offsets of the repair in `text`.
export function span(text, repair) {
  const lines = text.split("\n");
  const offset = (number, column) =>
    lines.slice(0, number - 1).reduce((sum, line) => sum + line.length + 1, 0) + unitIndex(lines[number - 1] ?? "", column);
  return [offset(repair.line, repair.column), offset(repair.endLine, repair.endColumn)];
}

export function applyRepair({ editor, field }, repair) {
  if (!editor) {
    const [start, end] = span(field.value, repair);
    field.setRangeText(repair.text, start, end, "end");
    field.focus();
    field.dispatchEvent(new Event("input", { bubbles: true }));
    return;
  }
  const { session } = editor;
  const { Range } = window.ace.require("ace/range");
  const at = (line, column) => [line - 1, unitIndex(session.getLine(line - 1), column)];
  const end = session.replace(new Range(...at(repair.line, repair.column), ...at(repair.endLine, repair.endColumn)), repair.text);
  editor.gotoLine(end.row + 1, end.column, false);
  editor.focus();
}
