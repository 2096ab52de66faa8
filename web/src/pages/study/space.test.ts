import { describe, expect, it } from "vitest";
import type { Parameter } from "../../api/types";
import { axesOf, brushed, placeOn, type Axis } from "./space";
import { search, trial } from "./test-data";

const axis = (parameter: Partial<Parameter>, values: unknown[] = []): Axis => {
  const [only] = axesOf(
    [{ name: "p", type: "float", ...parameter }],
    values.map((value, number) => trial(number, { p: value }, 0)),
  );
  if (only === undefined) throw new Error("no axis");
  return only;
};

describe("axes", () => {
  it("place a value on the log scale of the value itself", () => {
    expect(placeOn(axis({ low: 0.001, high: 0.1, log: true }), 0.01)).toBeCloseTo(0.5, 12);
    expect(placeOn(axis({ low: 0, high: 10 }), 2.5)).toBe(0.25);
  });

  it("read Katib's bounds, which are text", () => {
    const read = axis({ feasibleSpace: { min: "0.01", max: "1", distribution: "logUniform", list: null } });
    expect(read.scale).toEqual({ log: true, min: 0.01, max: 1 });
  });

  it("stand choices evenly, lists among them, and give a missing parameter no place", () => {
    const choices = axis({ type: "categorical", choices: ["sgd", [64, 32], "adam"] });
    expect(["sgd", [64, 32], "adam", "other", undefined].map((value) => placeOn(choices, value))).toEqual([
      0,
      0.5,
      1,
      null,
      null,
    ]);
  });

  it("fall back to what the trials have", () => {
    expect(axis({}, [3, 7, 5]).scale).toEqual({ log: false, min: 3, max: 7 });
  });
});

describe("brushing", () => {
  const axes = axesOf(search().parameters, []);
  const trials = [
    trial(0, { rate: 0.001, width: 32 }, 0.1),
    trial(1, { rate: 0.01, width: 512 }, 0.2),
    trial(2, { rate: 0.1, width: 512 }, 0.3),
    trial(3, { width: 512 }, 0.4),
  ];
  const left = (brushes: [string, [number, number]][]) =>
    brushed(trials, axes, new Map(brushes), (one) => (one.number < 3 ? one.number / 2 : null)).map(
      ({ number }) => number,
    );

  it("leaves all without a brush", () => {
    expect(left([])).toEqual([0, 1, 2, 3]);
  });

  it("leaves who is inside of every brush, rims included", () => {
    expect(left([["rate", [0.5, 1]]])).toEqual([1, 2]);
    expect(
      left([
        ["rate", [0, 0.5]],
        ["width", [0.9, 1]],
      ]),
    ).toEqual([1]);
  });

  it("leaves out who lacks the parameter, and filters by the value's own axis", () => {
    expect(left([["rate", [0, 1]]])).toEqual([0, 1, 2]);
    expect(left([["value", [0.4, 0.6]]])).toEqual([1]);
  });
});
