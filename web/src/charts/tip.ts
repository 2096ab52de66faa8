// A small text box beside a place on a canvas, on the side with space.
import type { Inks } from "./canvas";
import type { Area } from "./frame";

const LINE = 15;
const ROOM = 7;
const AWAY = 12;

/** The first line is emphasised. */
export function drawTip(
  context: CanvasRenderingContext2D,
  area: Area,
  at: readonly [x: number, y: number],
  lines: readonly string[],
  inks: Inks,
): void {
  const widest = Math.max(...lines.map((text) => context.measureText(text).width));
  const [width, height] = [widest + 2 * ROOM, lines.length * LINE + ROOM];
  const [x, y] = at;
  const left = x + AWAY + width <= area.right ? x + AWAY : Math.max(area.left, x - AWAY - width);
  const top = Math.min(Math.max(area.top, y - height / 2), area.bottom - height);
  context.globalAlpha = 0.95;
  context.fillStyle = inks.surface;
  context.fillRect(left, top, width, height);
  context.globalAlpha = 1;
  context.strokeStyle = inks.muted;
  context.lineWidth = 1;
  context.strokeRect(Math.round(left) + 0.5, Math.round(top) + 0.5, Math.round(width), Math.round(height));
  context.textAlign = "left";
  context.textBaseline = "top";
  lines.forEach((text, index) => {
    context.fillStyle = index === 0 ? inks.text : inks.muted;
    context.fillText(text, left + ROOM, top + ROOM / 2 + 2 + index * LINE);
  });
}
