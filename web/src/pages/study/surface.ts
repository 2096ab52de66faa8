// What a contour plot of two parameters shows: the trials' places, and the field of their ranks. Pure.
import type { Objective, TrialView } from "../../api/types";
import { fieldOf, rangeOf, type Field, type Side } from "../../charts/field";
import { valueAt } from "../../charts/scale";
import { parameterText } from "../../words/study";
import { comparable, ranksOf, valueAtRank } from "./results";
import { parametersOf, placeOn, type Axis } from "./space";

export interface Placed {
  trial: TrialView;
  /** Shares of the axes, choices in the middle of their bands. */
  x: number;
  y: number;
  /** 0 for the worst of them, 1 for the best. */
  rank: number;
  value: number;
}

export interface Surface {
  /** The best last, so that it lies on top. */
  placed: Placed[];
  field: Field;
  /** The lowest and the highest rank of the field; null without trials. */
  range: readonly [number, number] | null;
  /** How far the trials had trained whose values are compared; null where there are none. */
  step: number | null;
  /** The value of a rank. */
  valueOf: (rank: number) => number;
}

/**
 * Ranks and not values are smoothed, because one diverged training would bend the whole field. Values that may be compared: where
 * trials have trained differently far, those at the end of the first rung.
 */
export function surfaceOf(trials: readonly TrialView[], across: Axis, up: Axis, objective: number, goal: Objective["goal"]): Surface {
  const { values, step } = comparable(trials, objective);
  const found = trials.flatMap((trial) => {
    const given = parametersOf(trial);
    const x = placeOn(across, given[across.name]);
    const y = placeOn(up, given[up.name]);
    const value = values.get(trial.number);
    return x === null || y === null || value === undefined ? [] : [{ trial, x, y, value }];
  });
  const ranked = ranksOf(found.map(({ trial, value }) => [trial.number, value]), goal);
  const rankOf = (trial: TrialView) => ranked.get(trial.number) ?? 0;
  const field = fieldOf(
    found.map(({ trial, x, y }) => ({ x: choiceAt(across, x), y: choiceAt(up, y), z: rankOf(trial) })),
    sideOf(across),
    sideOf(up),
  );
  const placed = found.map(({ trial, x, y, value }) => ({ trial, value, rank: rankOf(trial), x: inBand(across, x, trial.number), y: inBand(up, y, trial.number) }));
  const all = placed.map(({ value }) => value);
  return { placed: placed.sort((a, b) => a.rank - b.rank), field, range: rangeOf(field), step, valueOf: (rank) => valueAtRank(all, goal, rank) };
}

/** What a place on the axis means, in words: a number, or a choice. */
export function textAt(axis: Axis, at: number): string {
  if (axis.scale === null) return axis.choices[Math.min(axis.choices.length - 1, Math.floor(at * axis.choices.length))] ?? "";
  return parameterText(Number(valueAt(axis.scale, at).toPrecision(3)));
}

function sideOf(axis: Axis): Side {
  return axis.scale === null ? { choices: axis.choices.length } : "numbers";
}

/** From the even places of choices, 0 to 1, to their index. */
function choiceAt(axis: Axis, at: number): number {
  return axis.scale === null ? Math.round(at * (axis.choices.length - 1)) : Math.min(1, Math.max(0, at));
}

/** Trials of one choice stand beside each other in its band, each always at the same place. */
function inBand(axis: Axis, at: number, number: number): number {
  if (axis.scale !== null) return at;
  const golden = (number * 0.618_033_988_75) % 1;
  return (choiceAt(axis, at) + 0.5 + (golden - 0.5) * 0.7) / axis.choices.length;
}
