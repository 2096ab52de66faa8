// What trials have come to: values, their ranks, the best so far. Which trial is the best, and the Pareto front, the api says itself. Pure.
import type { Objective, TrialView } from "../../api/types";

type Goal = Objective["goal"];

/** At the end of the last rung that the trial has completed; null before, and for what is no finite number. */
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

/** Every trial that has a value, by number, with the best value of it and those before it. */
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
 * The share of the other valued trials that each betters: 0 for the worst, 1 for the best. Colours follow it, and not the value itself,
 * because one diverged loss would leave all others the same colour.
 */
export function ranks(trials: readonly TrialView[], goal: Goal, objective = 0): Map<number, number> {
  const values = trials.flatMap((trial): [number, number][] => {
    const value = valueOf(trial, objective);
    return value === null ? [] : [[trial.number, value]];
  });
  return ranksOf(values, goal);
}

/** As `ranks`, of values by the numbers of their trials. */
export function ranksOf(values: Iterable<readonly [number: number, value: number]>, goal: Goal): Map<number, number> {
  const valued = [...values].map(([number, value]) => ({ number, value }));
  valued.sort((a, b) => (goal === "maximize" ? a.value - b.value : b.value - a.value));
  const found = new Map<number, number>();
  for (let start = 0; start < valued.length; ) {
    let end = start;
    while (end < valued.length && valued[end]?.value === valued[start]?.value) end += 1;
    const rank = valued.length === 1 ? 1 : (start + end - 1) / 2 / (valued.length - 1);
    for (const { number } of valued.slice(start, end)) found.set(number, rank);
    start = end;
  }
  return found;
}

/** The value that a trial of this rank would have: between the two of the ranks around it. */
export function valueAtRank(values: Iterable<number>, goal: Goal, rank: number): number {
  const worstFirst = [...values].sort((a, b) => (goal === "maximize" ? a - b : b - a));
  const exact = Math.min(1, Math.max(0, rank)) * (worstFirst.length - 1);
  const below = worstFirst[Math.floor(exact)] ?? 0;
  const above = worstFirst[Math.ceil(exact)] ?? below;
  return below + (above - below) * (exact - Math.floor(exact));
}

/**
 * A value of each trial that may be compared with those of the others, and how far all had trained: the end of the first rung, if
 * trials of the study have trained differently far; otherwise the outcome.
 */
export function comparable(trials: readonly TrialView[], objective = 0): { values: Map<number, number>; step: number | null } {
  const steps = new Set(trials.flatMap((trial) => (trial.outcome === null ? [] : [trial.outcome.step])));
  const first = Math.min(...trials.flatMap((trial) => trial.rungs.slice(0, 1).map((rung) => rung.step)));
  const early = steps.size > 1 && Number.isFinite(first);
  const values = new Map<number, number>();
  for (const trial of trials) {
    const value = early ? trial.rungs.find((rung) => rung.step === first)?.values[objective] : valueOf(trial, objective);
    if (value !== null && value !== undefined) values.set(trial.number, value);
  }
  const [only] = steps;
  return { values, step: early ? first : (only ?? null) };
}
