import { describe, expect, it } from "vitest";
import { comparable, history, ranks } from "./results";
import { sorted } from "./sort";
import { trial } from "./test-data";

describe("the history", () => {
  it("goes by number and keeps the best so far, whichever way is better", () => {
    const trials = [trial(2, {}, 0.5), trial(0, {}, 0.7), trial(1, {}, null), trial(3, {}, 0.9)];
    expect(history(trials, "maximize").map(({ number, best }) => [number, best])).toEqual([
      [0, 0.7],
      [2, 0.7],
      [3, 0.9],
    ]);
    expect(history(trials, "minimize").map(({ best }) => best)).toEqual([0.7, 0.5, 0.5]);
  });
});

describe("ranks", () => {
  it("puts the best at 1, equals together, and leaves out who has no value", () => {
    const trials = [trial(0, {}, 0.2), trial(1, {}, 0.9), trial(2, {}, 0.2), trial(3, {}, null)];
    expect([...ranks(trials, "maximize")].sort()).toEqual([
      [0, 0.25],
      [1, 1],
      [2, 0.25],
    ]);
    expect(ranks(trials, "minimize").get(1)).toBe(0);
    expect(ranks([trial(0, {}, 0.2)], "maximize").get(0)).toBe(1);
  });
});

describe("comparable values", () => {
  const point = (step: number, value: number) => ({ step, values: [value] });
  it("are those of the first rung where trials have trained differently far", () => {
    const far = trial(0, {}, 0.9, { outcome: point(3, 0.9), rungs: [point(1, 0.6), point(3, 0.9)] });
    const short = trial(1, {}, 0.5, { outcome: point(1, 0.5), rungs: [point(1, 0.5)] });
    expect(comparable([far, short])).toEqual({
      values: new Map([
        [0, 0.6],
        [1, 0.5],
      ]),
      step: 1,
    });
  });

  it("are the outcomes where all have trained as far", () => {
    expect(comparable([trial(0, {}, 0.4), trial(1, {}, 0.5)])).toEqual({
      values: new Map([
        [0, 0.4],
        [1, 0.5],
      ]),
      step: 1,
    });
  });
});

describe("the order of the table", () => {
  it("puts what has no value last in both directions", () => {
    const trials = [trial(0, { a: 10 }, null), trial(1, { a: 9 }, 0.4), trial(2, {}, 0.6), trial(3, { a: "x" }, 0.4)];
    const numbers = (by: string, descending: boolean) => sorted(trials, { by, descending }).map(({ number }) => number);
    expect(numbers("value:0", true)).toEqual([2, 1, 3, 0]);
    expect(numbers("value:0", false)).toEqual([1, 3, 2, 0]);
    expect(numbers("parameter:a", false)).toEqual([1, 0, 3, 2]);
    expect(numbers("number", true)).toEqual([3, 2, 1, 0]);
  });
});
