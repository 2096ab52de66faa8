// Axes of a study's parameters: places of values, and the trials that a brush selects. Pure.
import type { Parameter, TrialView } from "../../api/types";
import { place, scaleOf, type Scale } from "../../charts/scale";
import { parameterText } from "../../words/study";

export interface Axis {
  name: string;
  /** Scale of numbers; null for choices, which are spread evenly in their order. */
  scale: Scale | null;
  choices: readonly string[];
}

/** Bounds of a brush on its axis, 0 to 1. */
export type Brush = readonly [low: number, high: number];
export type Brushes = ReadonlyMap<string, Brush>;

export function parametersOf(trial: TrialView): Record<string, unknown> {
  return trial.parameters;
}

/**
 * Returns the axes. Bounds come from the document, or from the trials if the document has none that
 * this page can parse.
 */
export function axesOf(parameters: readonly Parameter[], trials: readonly TrialView[]): Axis[] {
  return parameters.map((parameter) => {
    const { name } = parameter;
    const space = parameter.feasibleSpace;
    const seen = trials.map((trial) => parametersOf(trial)[name]).filter((value) => value !== undefined);
    const listed = parameter.choices ?? space?.list ?? null;
    if (parameter.type === "categorical" || (listed !== null && !listed.every((one) => asNumber(one) !== null))) {
      const choices = (listed ?? seen).map(parameterText);
      return { name, scale: null, choices: [...new Set(choices)] };
    }
    const low = asNumber(parameter.low ?? space?.min);
    const high = asNumber(parameter.high ?? space?.max);
    const log = parameter.log ?? space?.distribution?.toLowerCase() === "loguniform";
    const values =
      low !== null && high !== null ? [low, high] : listed !== null ? listed.map(asNumber) : seen.map(asNumber);
    return { name, scale: scaleOf(values, log), choices: [] };
  });
}

/** Returns the place of a value on its axis, 0 to 1; null if the trial lacks the parameter. */
export function placeOn(axis: Axis, value: unknown): number | null {
  if (value === undefined || value === null) return null;
  if (axis.scale !== null) return place(axis.scale, asNumber(value));
  const index = axis.choices.indexOf(parameterText(value));
  if (index < 0) return null;
  return axis.choices.length === 1 ? 0.5 : index / (axis.choices.length - 1);
}

/**
 * Returns the trials inside all brushes. A trial without a brushed parameter is outside, because it
 * has no place there.
 */
export function brushed(
  trials: readonly TrialView[],
  axes: readonly Axis[],
  brushes: Brushes,
  valueAxis?: (trial: TrialView) => number | null,
): TrialView[] {
  if (brushes.size === 0) return [...trials];
  const known = new Map(axes.map((axis) => [axis.name, axis]));
  return trials.filter((trial) =>
    [...brushes].every(([name, [low, high]]) => {
      const axis = known.get(name);
      const at = axis === undefined ? (valueAxis?.(trial) ?? null) : placeOn(axis, parametersOf(trial)[name]);
      return at !== null && at >= low - 1e-9 && at <= high + 1e-9;
    }),
  );
}

function asNumber(value: unknown): number | null {
  if (typeof value === "number") return Number.isFinite(value) ? value : null;
  // Katib writes bounds as text.
  if (typeof value !== "string" || value.trim() === "") return null;
  const number = Number(value);
  return Number.isFinite(number) ? number : null;
}
