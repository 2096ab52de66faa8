// Content of a contour plot of two parameters: the trials' places, and the field of their ranks.
// Pure.
import type { Objective, TrialView } from "../../api/types";
import { fieldOf, rangeOf, type Field, type Side } from "../../charts/field";
import { valueAt } from "../../charts/scale";
import { parameterText } from "../../words/study";
import { comparable, ranksOf, valueAtRank } from "./results";
import { parametersOf, placeOn, type Axis } from "./space";

export interface Placed {
  trial: TrialView;
  /** Shares of the axes; choices are in the middle of their bands. */
  x: number;
  y: number;
  /** 0 for the worst trial, 1 for the best. */
  rank: number;
  value: number;
}

export interface Surface {
  /** Trials, the best last, so that it is drawn on top. */
  placed: Placed[];
  field: Field;
  /** Lowest and highest rank of the field; null without trials. */
  range: readonly [number, number] | null;
  /** Training length of the compared values; null without values. */
  step: number | null;
  /** Returns the value of a rank. */
  valueOf: (rank: number) => number;
}

/**
 * Returns the surface. It smooths ranks instead of values, because one diverged training would
 * distort the whole field. If trials have different training lengths, it compares the values at the
 * end of the first rung.
 */
export function surfaceOf(
  trials: readonly TrialView[],
  across: Axis,
  up: Axis,
  objective: number,
  goal: Objective["goal"],
): Surface {
  const { values, step } = comparable(trials, objective);
  const found = trials.flatMap((trial) => {
    const given = parametersOf(trial);
    const x = placeOn(across, given[across.name]);
    const y = placeOn(up, given[up.name]);
    const value = values.get(trial.number);
    return x === null || y === null || value === undefined ? [] : [{ trial, x, y, value }];
  });
  const ranked = ranksOf(
    found.map(({ trial, value }) => [trial.number, value]),
    goal,
  );
  const rankOf = (trial: TrialView) => ranked.get(trial.number) ?? 0;
  const field = fieldOf(
    found.map(({ trial, x, y }) => ({ x: choiceAt(across, x), y: choiceAt(up, y), z: rankOf(trial) })),
    sideOf(across),
    sideOf(up),
  );
  const placed = found.map(({ trial, x, y, value }) => ({
    trial,
    value,
    rank: rankOf(trial),
    x: inBand(across, x, trial.number),
    y: inBand(up, y, trial.number),
  }));
  const all = placed.map(({ value }) => value);
  return {
    placed: placed.sort((a, b) => a.rank - b.rank),
    field,
    range: rangeOf(field),
    step,
    valueOf: (rank) => valueAtRank(all, goal, rank),
  };
}

/** Returns the text of a place on the axis: a number, or a choice. */
export function textAt(axis: Axis, at: number): string {
  if (axis.scale === null)
    return axis.choices[Math.min(axis.choices.length - 1, Math.floor(at * axis.choices.length))] ?? "";
  return parameterText(Number(valueAt(axis.scale, at).toPrecision(3)));
}

function sideOf(axis: Axis): Side {
  return axis.scale === null ? { choices: axis.choices.length } : "numbers";
}

/** Converts an even place of 0 to 1 to the index of the choice. */
function choiceAt(axis: Axis, at: number): number {
  return axis.scale === null ? Math.round(at * (axis.choices.length - 1)) : Math.min(1, Math.max(0, at));
}

/** Places trials of one choice side by side in its band, always in the same positions. */
function inBand(axis: Axis, at: number, number: number): number {
  if (axis.scale !== null) return at;
  const golden = (number * 0.618_033_988_75) % 1;
  return (choiceAt(axis, at) + 0.5 + (golden - 0.5) * 0.7) / axis.choices.length;
}
