// Curves of several jobs in one chart. Pure.
import type uPlot from "uplot";
import { smooth } from "./metric";

export interface OverlaidPoint {
  step: number;
  value: number;
}

/**
 * Returns the steps of all curves, and a column per curve with its smoothed values. A curve has no
 * value at a step that only others have. On a logarithmic axis only values above 0 have a place.
 */
export function overlay(
  curves: readonly (readonly OverlaidPoint[])[],
  weight: number,
  log: boolean,
): uPlot.AlignedData {
  const steps = [...new Set(curves.flatMap((curve) => curve.map(({ step }) => step)))].sort((a, b) => a - b);
  const places = new Map(steps.map((step, place) => [step, place]));
  const columns = curves.map((curve) => {
    const column: (number | null)[] = steps.map(() => null);
    const ordered = [...curve].sort((a, b) => a.step - b.step);
    const values = smooth(
      ordered.map(({ value }) => value),
      weight,
    );
    ordered.forEach(({ step }, index) => {
      const value = values[index] ?? null;
      const place = places.get(step);
      if (place !== undefined) column[place] = log && value !== null && value <= 0 ? null : value;
    });
    return column;
  });
  return [steps, ...columns];
}
