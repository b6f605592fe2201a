// What the findings panel lists, and its marks in the editor. The panel is the one source: it comes
// from the server, at first with the page and then with every check.

export function findings() {
  return [...document.querySelectorAll("#config-findings [data-severity]")].map((item) => ({
    severity: item.dataset.severity,
    line: Number(item.dataset.line || 0),
    column: Number(item.dataset.column || 1),
    text: item.querySelector("[data-part=message]")?.textContent.trim() ?? "",
  }));
}

// Marks in the gutter and behind the lines that have a finding.
export function annotate(state) {
  const { session } = state.editor ?? {};
  if (!session) return;
  (state.markers ?? []).forEach((marker) => session.removeMarker(marker));
  const { Range } = window.ace.require("ace/range");
  const placed = findings().filter(({ line }) => line > 0 && line <= session.getLength());
  const kinds = { error: "error", warning: "warning", note: "info" };
  session.setAnnotations(placed.map(({ line, column, text, severity }) => ({ row: line - 1, column: column - 1, text, type: kinds[severity] })));
  state.markers = placed
    .filter(({ severity }) => severity !== "note")
    .map(({ line, severity }) => session.addMarker(new Range(line - 1, 0, line - 1, 1), `line--${severity}`, "fullLine"));
}
