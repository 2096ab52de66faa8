// A smooth field from scattered values, for contour plots. Pure.
//
// Trials also differ in parameters that are not on the axes, so a surface through all of them would
// show their noise as hills. The field is the mean of the surrounding trials, weighted by a
// Gaussian of their distance (Nadaraya, 1964; Watson, 1964), at three widths. Where few trials are
// near, the wider mean counts. So the field is within the trials' values and needs no solver.

/** Place of 0 to 1 on an axis of numbers; index of the choice on an axis of choices. */
export interface Spot {
  x: number;
  y: number;
  z: number;
}

/** An axis of the field: numbers, or a number of choices without values between them. */
export type Side = { choices: number } | "numbers";

export interface Field {
  across: Side;
  up: Side;
  columns: number;
  rows: number;
  /** Values row by row from the bottom; NaN where no trial is near. */
  values: Float64Array;
}

/** Samples along an axis of numbers: cells of about five pixels. */
const SAMPLES = 65;
/** Widths of the smoothing relative to the narrowest, the widest first. */
const WIDTHS = [4, 2, 1] as const;
/** Weight of a wider mean, as a number of trials at the place itself. */
const PRIOR = 1;
/** Minimum sum of weights: that of a trial about three widths away. Farther places are unknown. */
const NEAR = 0.02;

export function fieldOf(spots: readonly Spot[], across: Side, up: Side): Field {
  const columns = samplesOf(across);
  const rows = samplesOf(up);
  const weights = new Float64Array(columns * rows);
  const sums = new Float64Array(columns * rows);
  let mean = 0;
  for (const { x, y, z } of spots) {
    mean += z / spots.length;
    for (const [column, shareX] of sharesOf(x, across, columns)) {
      for (const [row, shareY] of sharesOf(y, up, rows)) {
        const cell = row * columns + column;
        weights[cell] = (weights[cell] ?? 0) + shareX * shareY;
        sums[cell] = (sums[cell] ?? 0) + shareX * shareY * z;
      }
    }
  }
  // Scott's rule (1992) for two dimensions and evenly spread trials, a little narrower because
  // wider means supplement it.
  const narrowest = Math.max(0.04, 0.25 * spots.length ** (-1 / 6));
  const values = new Float64Array(columns * rows).fill(mean);
  let nearby: Float64Array = weights;
  for (const width of WIDTHS) {
    nearby = blurred(weights, columns, rows, across, up, width * narrowest);
    const total = blurred(sums, columns, rows, across, up, width * narrowest);
    for (let cell = 0; cell < values.length; cell += 1)
      values[cell] = ((total[cell] ?? 0) + PRIOR * (values[cell] ?? 0)) / ((nearby[cell] ?? 0) + PRIOR);
  }
  for (let cell = 0; cell < values.length; cell += 1) if ((nearby[cell] ?? 0) < NEAR) values[cell] = NaN;
  return { across, up, columns, rows, values };
}

/**
 * Returns the field at a place of 0 to 1 on both axes, with choices in equal bands; null where no
 * trial is near.
 */
export function valueIn(field: Field, x: number, y: number): number | null {
  const column = bandOrPlace(x, field.across, field.columns);
  const row = bandOrPlace(y, field.up, field.rows);
  let value = 0;
  for (const [i, shareX] of sharesOf(column, field.across, field.columns)) {
    for (const [j, shareY] of sharesOf(row, field.up, field.rows))
      value += shareX * shareY * (field.values[j * field.columns + i] ?? NaN);
  }
  return Number.isNaN(value) ? null : value;
}

/** Returns the lowest and highest value; null without values. */
export function rangeOf({ values }: Field): [low: number, high: number] | null {
  let low = Infinity;
  let high = -Infinity;
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low > high ? null : [low, high];
}

function samplesOf(side: Side): number {
  return side === "numbers" ? SAMPLES : side.choices;
}

function bandOrPlace(at: number, side: Side, samples: number): number {
  return side === "numbers" ? at : Math.min(samples - 1, Math.max(0, Math.floor(at * samples)));
}

/** Returns the one or two samples next to a place, with their shares. */
function sharesOf(at: number, side: Side, samples: number): [sample: number, share: number][] {
  if (side !== "numbers") return [[at, 1]];
  const exact = Math.min(samples - 1, Math.max(0, at * (samples - 1)));
  const left = Math.min(samples - 2, Math.floor(exact));
  const share = exact - left;
  return share === 0
    ? [[left, 1]]
    : [
        [left, 1 - share],
        [left + 1, share],
      ];
}

/**
 * Smooths by a Gaussian of height 1 along the axes of numbers, so that weights remain numbers of
 * trials.
 */
function blurred(
  cells: Float64Array,
  columns: number,
  rows: number,
  across: Side,
  up: Side,
  width: number,
): Float64Array {
  const once = across === "numbers" ? along(cells, columns, rows, 1, columns, width) : cells;
  return up === "numbers" ? along(once, rows, columns, columns, 1, width) : once;
}

/** Smooths `length` samples `step` apart on each of `lines` lines, which are `stride` apart. */
function along(
  cells: Float64Array,
  length: number,
  lines: number,
  step: number,
  stride: number,
  width: number,
): Float64Array {
  const sigma = width * (length - 1);
  const reach = Math.min(length - 1, Math.ceil(3.5 * sigma));
  const kernel = Array.from({ length: reach + 1 }, (_, distance) => Math.exp(-0.5 * (distance / sigma) ** 2));
  const found = new Float64Array(cells.length);
  for (let line = 0; line < lines; line += 1) {
    for (let from = 0; from < length; from += 1) {
      const value = cells[line * stride + from * step] ?? 0;
      if (value === 0) continue;
      for (let to = Math.max(0, from - reach); to <= Math.min(length - 1, from + reach); to += 1) {
        const cell = line * stride + to * step;
        found[cell] = (found[cell] ?? 0) + value * (kernel[Math.abs(to - from)] ?? 0);
      }
    }
  }
  return found;
}
