// Results of trials: values, ranks, the best so far. The API determines the best trial and the
// Pareto front. Pure.
import type { Objective, TrialView } from "../../api/types";

type Goal = Objective["goal"];

/**
 * Returns the value at the end of the last completed rung; null before, and for values that are not
 * finite.
 */
export function valueOf(trial: TrialView, objective = 0): number | null {
  return trial.outcome?.values[objective] ?? null;
}

export function betters(goal: Goal, value: number, than: number): boolean {
  return goal === "maximize" ? value > than : value < than;
}

export interface HistoryPoint {
  number: number;
  value: number;
  best: number;
}

/** Returns every trial with a value, by number, with the best value up to it. */
export function history(trials: readonly TrialView[], goal: Goal, objective = 0): HistoryPoint[] {
  const points: HistoryPoint[] = [];
  let best: number | null = null;
  for (const trial of [...trials].sort((a, b) => a.number - b.number)) {
    const value = valueOf(trial, objective);
    if (value === null) continue;
    if (best === null || betters(goal, value, best)) best = value;
    points.push({ number: trial.number, value, best });
  }
  return points;
}

/**
 * Returns the share of the other trials with a value that each trial betters: 0 for the worst, 1
 * for the best. Colours follow the rank, because one diverged loss would give all others the same
 * colour.
 */
export function ranks(trials: readonly TrialView[], goal: Goal, objective = 0): Map<number, number> {
  const values = trials.flatMap((trial): [number, number][] => {
    const value = valueOf(trial, objective);
    return value === null ? [] : [[trial.number, value]];
  });
  return ranksOf(values, goal);
}

/** Does the same as `ranks`, for values by trial number. */
export function ranksOf(values: Iterable<readonly [number: number, value: number]>, goal: Goal): Map<number, number> {
  const valued = [...values].map(([number, value]) => ({ number, value }));
  valued.sort((a, b) => (goal === "maximize" ? a.value - b.value : b.value - a.value));
  const found = new Map<number, number>();
  for (let start = 0; start < valued.length;) {
    let end = start;
    while (end < valued.length && valued[end]?.value === valued[start]?.value) end += 1;
    const rank = valued.length === 1 ? 1 : (start + end - 1) / 2 / (valued.length - 1);
    for (const { number } of valued.slice(start, end)) found.set(number, rank);
    start = end;
  }
  return found;
}

/**
 * Returns the value that a trial of this rank would have, interpolated between the surrounding
 * ranks.
 */
export function valueAtRank(values: Iterable<number>, goal: Goal, rank: number): number {
  const worstFirst = [...values].sort((a, b) => (goal === "maximize" ? a - b : b - a));
  const exact = Math.min(1, Math.max(0, rank)) * (worstFirst.length - 1);
  const below = worstFirst[Math.floor(exact)] ?? 0;
  const above = worstFirst[Math.ceil(exact)] ?? below;
  return below + (above - below) * (exact - Math.floor(exact));
}

/**
 * Returns a comparable value of each trial and the training length that it belongs to: the end of
 * the first rung if trials have different lengths, otherwise the outcome.
 */
export function comparable(
  trials: readonly TrialView[],
  objective = 0,
): { values: Map<number, number>; step: number | null } {
  const steps = new Set(trials.flatMap((trial) => (trial.outcome === null ? [] : [trial.outcome.step])));
  const first = Math.min(...trials.flatMap((trial) => trial.rungs.slice(0, 1).map((rung) => rung.step)));
  const early = steps.size > 1 && Number.isFinite(first);
  const values = new Map<number, number>();
  for (const trial of trials) {
    const value = early
      ? trial.rungs.find((rung) => rung.step === first)?.values[objective]
      : valueOf(trial, objective);
    if (value !== null && value !== undefined) values.set(trial.number, value);
  }
  const [only] = steps;
  return { values, step: early ? first : (only ?? null) };
}
