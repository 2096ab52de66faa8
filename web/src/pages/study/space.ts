// The axes of a study's parameters: where a value lies on its own, and which trials a brush leaves. Pure.
import type { Parameter, TrialView } from "../../api/types";
import { place, scaleOf, type Scale } from "../../charts/scale";
import { parameterText } from "../../words/study";

export interface Axis {
  name: string;
  /** Numbers have a scale; categories have their choices, in their order, and stand evenly on the axis. */
  scale: Scale | null;
  choices: readonly string[];
}

/** Bounds of the places that a brush leaves, 0 to 1. */
export type Brush = readonly [low: number, high: number];
export type Brushes = ReadonlyMap<string, Brush>;

export function parametersOf(trial: TrialView): Record<string, unknown> {
  return trial.parameters;
}

/** Bounds come from the document; where it has none that this page can read, from the trials themselves. */
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
    const values = low !== null && high !== null ? [low, high] : listed !== null ? listed.map(asNumber) : seen.map(asNumber);
    return { name, scale: scaleOf(values, log), choices: [] };
  });
}

/** The place of a value on its axis, 0 to 1; null for a parameter that the trial does not have. */
export function placeOn(axis: Axis, value: unknown): number | null {
  if (value === undefined || value === null) return null;
  if (axis.scale !== null) return place(axis.scale, asNumber(value));
  const index = axis.choices.indexOf(parameterText(value));
  if (index < 0) return null;
  return axis.choices.length === 1 ? 0.5 : index / (axis.choices.length - 1);
}

/** Trials inside all brushes. One without a brushed parameter is outside: nobody knows where it would lie. */
export function brushed(trials: readonly TrialView[], axes: readonly Axis[], brushes: Brushes, valueAxis?: (trial: TrialView) => number | null): TrialView[] {
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
