// Draws a few lines of text as an image, for people without one at hand.

const FONT = "30px system-ui, 'DejaVu Sans', sans-serif";
const LINE = 52;
const MARGIN = 28;

export function drawPage(text) {
  const lines = text.split("\n").map((line) => line.trimEnd()).slice(0, 40);
  if (!lines.some(Boolean)) throw new Error("Write at least one line of text to draw.");
  const canvas = document.createElement("canvas");
  const measure = canvas.getContext("2d");
  measure.font = FONT;
  const widest = Math.max(...lines.map((line) => measure.measureText(line).width));
  canvas.width = Math.max(320, Math.ceil(widest) + 2 * MARGIN);
  canvas.height = lines.length * LINE + MARGIN;
  const drawing = canvas.getContext("2d");
  drawing.fillStyle = "white";
  drawing.fillRect(0, 0, canvas.width, canvas.height);
  drawing.fillStyle = "black";
  drawing.font = FONT;
  drawing.textBaseline = "middle";
  lines.forEach((line, index) => drawing.fillText(line, MARGIN, MARGIN / 2 + LINE * (index + 0.5)));
  return canvas;
}

export async function toFile(canvas) {
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return new File([blob], "drawn.png", { type: "image/png" });
}
