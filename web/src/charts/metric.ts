// Converts the points of a metric to the columns of a chart. Pure.
import type uPlot from "uplot";
import type { MetricPoint } from "../api/types";

/**
 * Returns the exponential moving average, as TensorBoard computes it: `weight` is the share of the
 * earlier values, from 0 to below 1. The first values are not drawn to 0.
 */
export function smooth(values: readonly number[], weight: number): number[] {
  let mean = 0;
  let share = 1;
  return values.map((value) => {
    mean = weight * mean + (1 - weight) * value;
    share *= weight;
    return mean / (1 - share);
  });
}

/**
 * Returns `[step, smoothed mean, mean, max, min]`. On a logarithmic axis only values above 0 have a
 * place.
 */
export function metricColumns(points: readonly MetricPoint[], weight: number, log: boolean): uPlot.AlignedData {
  const ordered = [...points].sort((a, b) => a.step - b.step);
  const placed = (value: number) => (log && value <= 0 ? null : value);
  const means = ordered.map(({ mean }) => mean);
  return [
    ordered.map(({ step }) => step),
    smooth(means, weight).map(placed),
    means.map(placed),
    ordered.map(({ max }) => placed(max)),
    ordered.map(({ min }) => placed(min)),
  ];
}

/** Returns a range with a margin around the values; whole decades on a logarithmic axis. */
export function metricRange(min: number | null, max: number | null, log: boolean): [number, number] {
  if (log) {
    const low = Math.floor(Math.log10(min ?? 0.1));
    return [10 ** low, 10 ** Math.max(Math.ceil(Math.log10(max ?? 1)), low + 1)];
  }
  const [low, high] = [min ?? 0, max ?? 1];
  const room = (high - low) * 0.08 || Math.max(Math.abs(high) * 0.1, 1e-6);
  return [low - room, high + room];
}

export interface MetricGroup {
  /** Part of the names before the first `/`; empty for names without it. */
  prefix: string;
  names: string[];
}

/** Groups names by their prefix, in alphabetical order and those without a prefix first. */
export function groups(names: readonly string[]): MetricGroup[] {
  const known = new Map<string, string[]>();
  for (const name of [...names].sort((a, b) => (a < b ? -1 : 1))) {
    const prefix = name.includes("/") ? name.slice(0, name.indexOf("/")) : "";
    const group = known.get(prefix);
    if (group === undefined) known.set(prefix, [name]);
    else group.push(name);
  }
  return [...known].map(([prefix, all]) => ({ prefix, names: all })).sort((a, b) => (a.prefix < b.prefix ? -1 : 1));
}
