// Conversion between values and places on an axis, linear or logarithmic, with round ticks. Pure.
import { compact } from "./axes";

export interface Scale {
  log: boolean;
  min: number;
  max: number;
}

/**
 * Returns a scale over the finite values; a logarithmic one uses only values above 0. A single
 * value gets a margin; without values the scale is 0 to 1.
 */
export function scaleOf(values: Iterable<number | null | undefined>, log: boolean): Scale {
  let min = Infinity;
  let max = -Infinity;
  for (const value of values) {
    if (value === null || value === undefined || !Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < min) min = value;
    if (value > max) max = value;
  }
  if (min > max) return log ? { log, min: 0.1, max: 1 } : { log, min: 0, max: 1 };
  if (min < max) return { log, min, max };
  if (log) return { log, min: min / 2, max: max * 2 };
  const room = Math.max(Math.abs(min) * 0.1, 1e-6);
  return { log, min: min - room, max: max + room };
}

/** Adds a share of the length at both ends, so that marks at the edge are complete. */
export function padded(scale: Scale, share: number): Scale {
  if (scale.log) {
    const factor = (scale.max / scale.min) ** share;
    return { ...scale, min: scale.min / factor, max: scale.max * factor };
  }
  const room = (scale.max - scale.min) * share;
  return { ...scale, min: scale.min - room, max: scale.max + room };
}

/**
 * Returns 0 at `min` and 1 at `max`; null for a value without a place, such as 0 on a logarithmic
 * scale.
 */
export function place(scale: Scale, value: number | null | undefined): number | null {
  if (value === null || value === undefined || !Number.isFinite(value)) return null;
  if (!scale.log) return (value - scale.min) / (scale.max - scale.min);
  return value <= 0 ? null : Math.log(value / scale.min) / Math.log(scale.max / scale.min);
}

export function valueAt(scale: Scale, at: number): number {
  return scale.log ? scale.min * (scale.max / scale.min) ** at : scale.min + (scale.max - scale.min) * at;
}

/**
 * Returns about `wanted` round values on the scale: steps of 1, 2 or 5, or powers of ten on a wide
 * logarithmic scale.
 */
export function ticks(scale: Scale, wanted: number): number[] {
  if (scale.log && scale.max / scale.min >= 10) {
    const first = Math.ceil(Math.log10(scale.min) - 1e-9);
    const last = Math.floor(Math.log10(scale.max) + 1e-9);
    const every = Math.max(1, Math.ceil((last - first + 1) / wanted));
    const within: number[] = [];
    for (let power = first; power <= last; power += every) within.push(10 ** power);
    if (within.length > 1) return within;
    return [1, 2, 5, 10, 20, 50]
      .map((step) => step * 10 ** (first - 1))
      .filter((value) => value >= scale.min && value <= scale.max);
  }
  const span = scale.max - scale.min;
  if (!(span > 0) || !Number.isFinite(span)) return [];
  const rough = span / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough * 0.999) ?? 10);
  const from = Math.ceil(scale.min / step - 1e-9);
  const to = Math.floor(scale.max / step + 1e-9);
  return Array.from({ length: to - from + 1 }, (_, index) => Number(((from + index) * step).toPrecision(12)));
}

export function tickText(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e9)) return value.toExponential(0).replace("e+", "e");
  return size < 1 ? String(Number(value.toPrecision(3))) : compact(value);
}
