// Dots on a canvas, and the dot under the pointer. Places are shares of the axes, 0 to 1.
import type { Draw, Inks } from "./canvas";
import { areaOf, dot, type Area } from "./frame";

export interface Dot {
  number: number;
  x: number;
  y: number;
  ink: (inks: Inks) => string;
}

/** Draws a border in that colour where the background is coloured too. */
export function drawDots(
  context: CanvasRenderingContext2D,
  area: Area,
  dots: readonly Dot[],
  inks: Inks,
  rim?: string,
): void {
  const radius = dots.length > 1000 ? 2 : dots.length > 200 ? 2.5 : 3.5;
  context.globalAlpha = dots.length > 1000 ? 0.6 : 0.9;
  for (const one of dots) {
    context.fillStyle = one.ink(inks);
    dot(context, ...spot(one, area), radius);
    if (rim === undefined) continue;
    context.strokeStyle = rim;
    context.lineWidth = 1;
    context.stroke();
  }
  context.globalAlpha = 1;
}

/** Draws a ring around the dots of one trial. */
export function drawRings(dots: readonly Dot[], number: number | null): Draw | undefined {
  const chosen = dots.filter((one) => one.number === number);
  if (chosen.length === 0) return undefined;
  return (context, size, inks) => {
    for (const one of chosen) {
      context.strokeStyle = inks.text;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(...spot(one, areaOf(size)), 6, 0, 2 * Math.PI);
      context.stroke();
    }
  };
}

/** Maximum distance of the pointer from a dot, in pixels. */
const REACH = 20;

export function dotAt(dots: readonly Dot[], area: Area, at: { x: number; y: number }): Dot | undefined {
  let found: Dot | undefined;
  let nearest = REACH;
  for (const one of dots) {
    const [x, y] = spot(one, area);
    const distance = Math.hypot(at.x - x, at.y - y);
    if (distance < nearest) {
      nearest = distance;
      found = one;
    }
  }
  return found;
}

export function spot({ x, y }: Pick<Dot, "x" | "y">, area: Area): [number, number] {
  return [area.left + x * (area.right - area.left), area.bottom - y * (area.bottom - area.top)];
}
