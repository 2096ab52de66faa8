// Areas of a field between levels, by marching squares, and their drawing on a canvas. An axis of
// choices gives bands.
import type { Inks } from "./canvas";
import type { Field } from "./field";
import type { Area } from "./frame";

/**
 * Part of the field with continuous values, on places of 0 to 1: the whole field, or the band of a
 * choice.
 */
export interface Patch {
  left: number;
  right: number;
  bottom: number;
  top: number;
  columns: number;
  rows: number;
  at: (column: number, row: number) => number;
}

type Point = readonly [x: number, y: number];

export interface Cut {
  /**
   * Polygons, one per cell, that cover everything at or above the level. All have the same
   * orientation, so that they join without seams.
   */
  areas: Point[][];
  /** Border lines at the level. */
  lines: (readonly [Point, Point])[];
}

/** A band is represented by two samples of the same value. */
export function patchesOf({ across, up, columns, rows, values }: Field): Patch[] {
  const bandsX = across === "numbers" ? [null] : Array.from({ length: columns }, (_, choice) => choice);
  const bandsY = up === "numbers" ? [null] : Array.from({ length: rows }, (_, choice) => choice);
  return bandsY.flatMap((bandY) =>
    bandsX.map((bandX) => ({
      left: bandX === null ? 0 : bandX / columns,
      right: bandX === null ? 1 : (bandX + 1) / columns,
      bottom: bandY === null ? 0 : bandY / rows,
      top: bandY === null ? 1 : (bandY + 1) / rows,
      columns: bandX === null ? columns : 2,
      rows: bandY === null ? rows : 2,
      at: (column: number, row: number) => values[(bandY ?? row) * columns + (bandX ?? column)] ?? NaN,
    })),
  );
}

export function cutAt(patch: Patch, level: number): Cut {
  const cut: Cut = { areas: [], lines: [] };
  const x = (column: number) => patch.left + ((patch.right - patch.left) * column) / (patch.columns - 1);
  const y = (row: number) => patch.bottom + ((patch.top - patch.bottom) * row) / (patch.rows - 1);
  for (let row = 0; row + 1 < patch.rows; row += 1) {
    for (let column = 0; column + 1 < patch.columns; column += 1) {
      const corner = (right: number, above: number) => ({
        x: x(column + right),
        y: y(row + above),
        over: patch.at(column + right, row + above) - level,
      });
      const corners = [corner(0, 0), corner(1, 0), corner(1, 1), corner(0, 1)];
      if (corners.every(({ over }) => !Number.isNaN(over))) cutCell(corners, cut);
    }
  }
  return cut;
}

interface Corner {
  x: number;
  y: number;
  /** Value relative to the level: positive above, negative below. */
  over: number;
}

/**
 * Walks around the cell. Corners above the level belong to the polygon; an edge that crosses the
 * level adds a corner.
 */
function cutCell(corners: readonly Corner[], { areas, lines }: Cut): void {
  const area: Point[] = [];
  const crossings: { at: Point; leaves: boolean }[] = [];
  corners.forEach((here, index) => {
    const next = corners[(index + 1) % corners.length] ?? here;
    const leaves = here.over >= 0;
    if (leaves) area.push([here.x, here.y]);
    if (leaves === next.over >= 0) return;
    const share = here.over / (here.over - next.over);
    const at: Point = [here.x + (next.x - here.x) * share, here.y + (next.y - here.y) * share];
    area.push(at);
    crossings.push({ at, leaves });
  });
  if (area.length > 2) areas.push(area);
  // From the point where the walk leaves the area, the border goes straight to the point where it
  // enters again.
  crossings.forEach(({ at, leaves }, index) => {
    const next = crossings[(index + 1) % crossings.length];
    if (leaves && next !== undefined) lines.push([at, next.at]);
  });
}

/** Number of bands of a field: the five colours of the ramp, and one between each two. */
export const BANDS = 9;

/**
 * Returns the band, 0 to 8, of a value between `low` and `high`; the first or last band for a value
 * outside.
 */
export function bandOf(value: number, [low, high]: readonly [number, number]): number {
  if (high <= low) return BANDS >> 1;
  return Math.min(BANDS - 1, Math.max(0, Math.floor(((value - low) / (high - low)) * BANDS)));
}

export function levelOf(band: number, [low, high]: readonly [number, number]): number {
  return low + ((high - low) * band) / BANDS;
}

/** Returns the colour of a band: one of the ramp, or the mean of two. */
export function shade(inks: Pick<Inks, "ramp" | "mark">, band: number): string {
  const under = inks.ramp[band >> 1] ?? inks.mark;
  return band % 2 === 0 ? under : middle(under, inks.ramp[(band >> 1) + 1] ?? under);
}

/** Returns the mean of two colours of the form `#rrggbb`; the first one for other forms. */
function middle(one: string, other: string): string {
  const parse = (text: string) =>
    /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})$/i
      .exec(text)
      ?.slice(1)
      .map((part) => Number.parseInt(part, 16));
  const [a, b] = [parse(one), parse(other)];
  if (a === undefined || b === undefined) return one;
  return `rgb(${a.map((part, index) => Math.round((part + (b[index] ?? part)) / 2)).join(" ")})`;
}

/** Draws each band over the lower ones, with a thin line between them. */
export function drawField(
  context: CanvasRenderingContext2D,
  area: Area,
  field: Field,
  range: readonly [number, number],
  inks: Inks,
): void {
  const [width, height] = [area.right - area.left, area.bottom - area.top];
  const patches = patchesOf(field);
  for (let band = 0; band < BANDS; band += 1) {
    // The first band covers everything. A constant field has only the middle band.
    const even = range[1] <= range[0];
    if (even && band > 0) break;
    const cuts = patches.map((patch) => cutAt(patch, band === 0 ? -Infinity : levelOf(band, range)));
    context.beginPath();
    for (const { areas } of cuts) {
      for (const piece of areas) {
        piece.forEach(([x, y], index) => {
          if (index === 0) context.moveTo(area.left + x * width, area.bottom - y * height);
          else context.lineTo(area.left + x * width, area.bottom - y * height);
        });
        context.closePath();
      }
    }
    context.fillStyle = shade(inks, even ? BANDS >> 1 : band);
    context.fill();
    context.beginPath();
    for (const [[x0, y0], [x1, y1]] of cuts.flatMap(({ lines }) => lines)) {
      context.moveTo(area.left + x0 * width, area.bottom - y0 * height);
      context.lineTo(area.left + x1 * width, area.bottom - y1 * height);
    }
    context.globalAlpha = 0.5;
    context.strokeStyle = inks.surface;
    context.lineWidth = 1;
    context.stroke();
    context.globalAlpha = 1;
  }
  context.strokeStyle = inks.surface;
  context.lineWidth = 2;
  for (const patch of patches) {
    if (patches.length > 1)
      context.strokeRect(
        area.left + patch.left * width,
        area.bottom - patch.top * height,
        (patch.right - patch.left) * width,
        (patch.top - patch.bottom) * height,
      );
  }
}
