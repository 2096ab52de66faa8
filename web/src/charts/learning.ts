// Learning curves of many trials: drawing, and the curve under the pointer. Pure except for the
// canvas.
import { rankInk, type Draw, type Inks } from "./canvas";
import { areaOf, drawXAxis, drawYAxis, toX, toY, type Area } from "./frame";
import { valueAt, type Scale } from "./scale";

export interface Line {
  number: number;
  rank: number | undefined;
  /** Values by ascending x; null is a gap, for example of a diverged loss. */
  xs: readonly number[];
  ys: readonly (number | null)[];
}

export interface LineScales {
  x: Scale;
  y: Scale;
}

/** Draws the worst first, so that the best are on top. With more lines each is fainter. */
export function drawLines(lines: readonly Line[], { x, y }: LineScales, format: (value: number) => string): Draw {
  return (context, size, inks) => {
    const area = areaOf(size);
    drawYAxis(context, area, y, inks, format);
    drawXAxis(context, area, x, inks);
    context.save();
    context.beginPath();
    context.rect(area.left - 3, area.top - 3, area.right - area.left + 6, area.bottom - area.top + 6);
    context.clip();
    strokeLines(context, area, lines, { x, y }, inks);
    context.restore();
  };
}

export function strokeLines(
  context: CanvasRenderingContext2D,
  area: Area,
  lines: readonly Line[],
  scales: LineScales,
  inks: Inks,
): void {
  context.lineWidth = lines.length > 400 ? 1 : 1.25;
  context.lineJoin = "round";
  context.globalAlpha = lines.length > 1000 ? 0.35 : lines.length > 100 ? 0.6 : 0.9;
  const ordered = [...lines].sort((a, b) => (a.rank ?? -1) - (b.rank ?? -1));
  for (const one of ordered) strokeLine(context, area, one, scales, rankInk(inks, one.rank));
  context.globalAlpha = 1;
}

export function drawChosen(one: Line | undefined, scales: LineScales, insets?: Partial<Area>): Draw | undefined {
  if (one === undefined) return undefined;
  return (context, size, inks) => {
    const area = areaOf(size, insets);
    context.lineWidth = 5;
    strokeLine(context, area, one, scales, inks.surface);
    context.lineWidth = 2.5;
    strokeLine(context, area, one, scales, inks.text);
  };
}

export function strokeLine(
  context: CanvasRenderingContext2D,
  area: Area,
  { xs, ys }: Line,
  scales: LineScales,
  ink: string,
): void {
  context.strokeStyle = ink;
  context.fillStyle = ink;
  context.beginPath();
  let open = false;
  let drawn = 0;
  // Skips points beyond the resolution, which would only take time.
  const every = Math.max(1, Math.floor(xs.length / Math.max(1, area.right - area.left)));
  for (let index = 0; index < xs.length; index += every) {
    const left = toX(area, scales.x, xs[index]);
    const top = toY(area, scales.y, ys[index]);
    if (left === null || top === null) {
      open = false;
      continue;
    }
    if (open) context.lineTo(left, top);
    else context.moveTo(left, top);
    open = true;
    drawn += 1;
    if (drawn === 1 && xs.length === 1) context.arc(left, top, 2, 0, 2 * Math.PI);
  }
  context.stroke();
}

/** Maximum distance of the pointer from a line, in pixels. */
const REACH = 24;

/** Returns the line closest to the pointer at its x, or whose end is near. */
export function lineAt(
  lines: readonly Line[],
  area: Area,
  scales: LineScales,
  at: { x: number; y: number },
): Line | undefined {
  const wanted = valueAt(scales.x, (at.x - area.left) / (area.right - area.left));
  let found: Line | undefined;
  let nearest = REACH;
  for (const one of lines) {
    const last = one.xs.length - 1;
    const right = Math.min(last, firstAtOrAfter(one.xs, wanted));
    for (const index of right > 0 ? [right - 1, right] : [right]) {
      const next = Math.min(index + 1, last);
      const distance = toSegment(at, corner(one, index, area, scales), corner(one, next, area, scales));
      if (distance < nearest) {
        nearest = distance;
        found = one;
      }
    }
  }
  return found;
}

function corner(one: Line, index: number, area: Area, { x, y }: LineScales): { x: number; y: number } | null {
  const left = toX(area, x, one.xs[index]);
  const top = toY(area, y, one.ys[index]);
  return left === null || top === null ? null : { x: left, y: top };
}

function toSegment(
  at: { x: number; y: number },
  from: { x: number; y: number } | null,
  to: { x: number; y: number } | null,
): number {
  if (from === null || to === null) return Infinity;
  const dx = to.x - from.x;
  const dy = to.y - from.y;
  const length = dx * dx + dy * dy;
  const along = length === 0 ? 0 : Math.max(0, Math.min(1, ((at.x - from.x) * dx + (at.y - from.y) * dy) / length));
  return Math.hypot(at.x - from.x - along * dx, at.y - from.y - along * dy);
}

function firstAtOrAfter(xs: readonly number[], wanted: number): number {
  let low = 0;
  let high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((xs[middle] ?? Infinity) < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}
