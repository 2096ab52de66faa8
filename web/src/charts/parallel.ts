// Parallel coordinates: a vertical axis per parameter, a line per trial, and brushes on the axes.
// Pure except for the canvas.
import type { Draw, Inks } from "./canvas";
import { areaOf, type Area } from "./frame";
import { strokeLine, strokeLines, type Line, type LineScales } from "./learning";

export const INSETS: Partial<Area> = { left: 40, right: 48, top: 26, bottom: 12 };

export interface Upright {
  key: string;
  name: string;
  /** Places from 0 at the bottom to 1 at the top. */
  ticks: readonly { at: number; text: string }[];
}

export function scalesOf(axes: number): LineScales {
  return { x: { log: false, min: 0, max: Math.max(1, axes - 1) }, y: { log: false, min: 0, max: 1 } };
}

export function drawParallel(axes: readonly Upright[], inside: readonly Line[], outside: readonly Line[]): Draw {
  return (context, size, inks) => {
    const area = areaOf(size, INSETS);
    const scales = scalesOf(axes.length);
    context.globalAlpha = 0.5;
    context.lineWidth = 1;
    for (const one of outside) strokeLine(context, area, one, scales, inks.grid);
    context.globalAlpha = 1;
    strokeLines(context, area, inside, scales, inks);
    axes.forEach((axis, index) =>
      drawUpright(context, area, axis, xOf(area, axes.length, index), axisWidth(area, axes.length), inks),
    );
  };
}

function drawUpright(
  context: CanvasRenderingContext2D,
  area: Area,
  { name, ticks }: Upright,
  x: number,
  width: number,
  inks: Inks,
): void {
  context.strokeStyle = inks.mark;
  context.lineWidth = 1;
  context.beginPath();
  context.moveTo(x, area.top);
  context.lineTo(x, area.bottom);
  context.stroke();
  context.fillStyle = inks.text;
  context.textAlign = "center";
  context.textBaseline = "bottom";
  context.fillText(fitted(context, name, width - 6), x, area.top - 9);
  context.textAlign = "left";
  context.textBaseline = "middle";
  // A border in the background colour keeps the text readable over lines.
  context.lineWidth = 3;
  context.strokeStyle = inks.surface;
  context.fillStyle = inks.muted;
  for (const { at, text } of ticks) {
    const y = yOf(area, at);
    const shown = fitted(context, text, width - 10);
    context.strokeText(shown, x + 5, y);
    context.fillText(shown, x + 5, y);
  }
}

/** Draws bands over the brushed ranges, including the one that is being drawn. */
export function drawBrushes(axes: readonly Upright[], brushes: ReadonlyMap<string, readonly [number, number]>): Draw {
  return (context, size, inks) => {
    const area = areaOf(size, INSETS);
    axes.forEach(({ key }, index) => {
      const brush = brushes.get(key);
      if (brush === undefined) return;
      const x = xOf(area, axes.length, index);
      const top = yOf(area, brush[1]);
      context.globalAlpha = 0.25;
      context.fillStyle = inks.accent;
      context.fillRect(x - 8, top, 16, Math.max(2, yOf(area, brush[0]) - top));
      context.globalAlpha = 1;
      context.strokeStyle = inks.accent;
      context.lineWidth = 1.5;
      context.strokeRect(x - 8, top, 16, Math.max(2, yOf(area, brush[0]) - top));
    });
  };
}

/** Returns the axis at a place, if the pointer is near enough. */
export function uprightAt(axes: readonly Upright[], area: Area, x: number): Upright | undefined {
  const nearest = Math.round(((x - area.left) / (area.right - area.left)) * Math.max(1, axes.length - 1));
  return Math.abs(xOf(area, axes.length, nearest) - x) <= 18 ? axes[nearest] : undefined;
}

export function placeAt(area: Area, y: number): number {
  return Math.max(0, Math.min(1, (area.bottom - y) / (area.bottom - area.top)));
}

function xOf(area: Area, axes: number, index: number): number {
  return area.left + (index / Math.max(1, axes - 1)) * (area.right - area.left);
}

function axisWidth(area: Area, axes: number): number {
  return (area.right - area.left) / Math.max(1, axes - 1);
}

function yOf(area: Area, at: number): number {
  return area.bottom - at * (area.bottom - area.top);
}

function fitted(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let kept = text.length;
  while (kept > 1 && context.measureText(`${text.slice(0, kept)}…`).width > width) kept -= 1;
  return `${text.slice(0, kept)}…`;
}
