// Order of the trial table. Pure.
import type { TrialView } from "../../api/types";
import { parametersOf } from "./space";
import { valueOf } from "./results";

/** `number`, `state`, `rung`, `value:0` of the first objective, or `parameter:rate`. */
export interface Order {
  by: string;
  descending: boolean;
}

/**
 * Sorts trials. Missing values come last in both directions; equal ones keep the order of creation.
 */
export function sorted(trials: readonly TrialView[], { by, descending }: Order): TrialView[] {
  const keyed = trials.map((trial) => ({ trial, key: keyOf(trial, by) }));
  keyed.sort((a, b) => {
    if (a.key === null || b.key === null)
      return Number(a.key === null) - Number(b.key === null) || a.trial.number - b.trial.number;
    const difference =
      typeof a.key === "number" && typeof b.key === "number"
        ? a.key - b.key
        : String(a.key).localeCompare(String(b.key));
    return (descending ? -difference : difference) || a.trial.number - b.trial.number;
  });
  return keyed.map(({ trial }) => trial);
}

function keyOf(trial: TrialView, by: string): number | string | null {
  if (by.startsWith("value:")) return valueOf(trial, Number(by.slice("value:".length)));
  if (by.startsWith("parameter:")) {
    const value = parametersOf(trial)[by.slice("parameter:".length)];
    if (value === undefined || value === null) return null;
    return typeof value === "number" || typeof value === "string" ? value : JSON.stringify(value);
  }
  if (by === "state") return trial.state;
  if (by === "rung") return trial.rung;
  return trial.number;
}
