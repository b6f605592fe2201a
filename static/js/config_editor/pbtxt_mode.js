// An Ace mode for protobuf text format and a theme made of the console's own tokens: colours are in
// CSS (classes .ace-conch .ace_*), so that light and dark follow the page.

export const THEME = { cssClass: "ace-conch", cssText: "", isDark: false };

const NUMBER = "[+-]?(?:0x[0-9a-fA-F]+|\\d+(?:\\.\\d*)?(?:[eE][+-]?\\d+)?)\\b";

export function createMode(ace) {
  const { Mode: TextMode } = ace.require("ace/mode/text");
  const { TextHighlightRules } = ace.require("ace/mode/text_highlight_rules");
  const { CstyleBehaviour } = ace.require("ace/mode/behaviour/cstyle");
  class PbtxtRules extends TextHighlightRules {
    constructor() {
      super();
      this.$rules = {
        start: [
          { token: "comment", regex: "#.*$" },
          { token: "invalid", regex: "//.*$" },
          { token: "string", regex: '"(?:\\\\.|[^"\\\\])*"' },
          { token: "string", regex: "'(?:\\\\.|[^'\\\\])*'" },
          { token: "constant.language", regex: "(?:true|false|[A-Z][A-Z0-9]*_[A-Z0-9_]+)\\b" },
          { token: "constant.numeric", regex: NUMBER },
          { token: "variable", regex: "[a-z_][A-Za-z0-9_]*(?=\\s*[:{\\[<])" },
          { token: "paren.lparen", regex: "[{\\[<]" },
          { token: "paren.rparen", regex: "[}\\]>]" },
          { token: "text", regex: "\\s+" },
        ],
      };
    }
  }
  const mode = new TextMode();
  mode.HighlightRules = PbtxtRules;
  mode.$behaviour = new CstyleBehaviour();
  mode.lineCommentStart = "#";
  mode.blockComment = null;
  mode.$id = "conch/mode/pbtxt";
  mode.getNextLineIndent = (state, line, tab) => {
    const indent = /^\s*/.exec(line)[0];
    return /[{[<]\s*(?:#.*)?$/.test(line) ? indent + tab : indent;
  };
  mode.checkOutdent = (state, line, input) => /^\s+$/.test(line) && /^\s*[}\]>]/.test(input);
  mode.autoOutdent = (state, doc, row) => {
    const line = doc.getLine(row);
    const [indent] = /^\s*/.exec(line);
    doc.remove({ start: { row, column: Math.max(0, indent.length - 2) }, end: { row, column: indent.length } });
  };
  return mode;
}
