// Frame of a chart on a canvas: area, grid and labels.
import type { Inks, Size } from "./canvas";
import { place, tickText, ticks, type Scale } from "./scale";

export interface Area {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

export function areaOf({ width, height }: Size, insets: Partial<Area> = {}): Area {
  const { left = 54, top = 10, right = 14, bottom = 24 } = insets;
  return { left, top, right: width - right, bottom: height - bottom };
}

export function toX(area: Area, scale: Scale, value: number | null | undefined): number | null {
  const at = place(scale, value);
  return at === null ? null : area.left + at * (area.right - area.left);
}

export function toY(area: Area, scale: Scale, value: number | null | undefined): number | null {
  const at = place(scale, value);
  return at === null ? null : area.bottom - at * (area.bottom - area.top);
}

export function drawYAxis(
  context: CanvasRenderingContext2D,
  area: Area,
  scale: Scale,
  inks: Inks,
  format: (value: number) => string = tickText,
): void {
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.lineWidth = 1;
  for (const value of ticks(scale, Math.max(2, Math.floor((area.bottom - area.top) / 38)))) {
    const y = toY(area, scale, value);
    if (y === null) continue;
    context.strokeStyle = inks.grid;
    line(context, area.left, Math.round(y) + 0.5, area.right, Math.round(y) + 0.5);
    context.fillStyle = inks.muted;
    context.fillText(format(value), area.left - 6, y);
  }
}

export function drawXAxis(
  context: CanvasRenderingContext2D,
  area: Area,
  scale: Scale,
  inks: Inks,
  format: (value: number) => string = tickText,
): void {
  context.textAlign = "center";
  context.textBaseline = "top";
  context.fillStyle = inks.muted;
  for (const value of ticks(scale, Math.max(2, Math.floor((area.right - area.left) / 74)))) {
    const x = toX(area, scale, value);
    if (x !== null) context.fillText(format(value), x, area.bottom + 7);
  }
}

export function line(context: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  context.beginPath();
  context.moveTo(x0, y0);
  context.lineTo(x1, y1);
  context.stroke();
}

export function dot(context: CanvasRenderingContext2D, x: number, y: number, radius: number): void {
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
}
