import { describe, expect, it } from "vitest";
import type { Parameter } from "../../api/types";
import { valueIn } from "../../charts/field";
import { axesOf, type Axis } from "./space";
import { surfaceOf, textAt } from "./surface";
import { trial } from "./test-data";

const parameters: Parameter[] = [
  { name: "rate", type: "float", low: 0.001, high: 0.1, log: true },
  { name: "width", type: "int", low: 0, high: 100 },
  { name: "kind", type: "categorical", choices: ["sgd", "adam"] },
];
const axis = (index: number): Axis => {
  const found = axesOf(parameters, [])[index];
  if (found === undefined) throw new Error("no axis");
  return found;
};
const [rate, width, kind] = [axis(0), axis(1), axis(2)];

/** Better towards larger rates for adam, and towards smaller ones for sgd. */
const trials = Array.from({ length: 80 }, (_, number) => {
  const at = (number * 0.754_877_666) % 1;
  const adam = number % 2 === 1;
  return trial(
    number,
    { rate: 0.001 * 100 ** at, width: 100 * ((number * 0.569_840_29) % 1), kind: adam ? "adam" : "sgd" },
    adam ? at : 1 - at,
  );
});

describe("the surface of two parameters", () => {
  it("places trials on the log scale, and colours by rank, the best on top", () => {
    const { placed } = surfaceOf(
      [
        trial(0, { rate: 0.01, width: 50 }, 0.2),
        trial(1, { rate: 0.1, width: 0 }, 1e9),
        trial(2, { rate: 0.001, width: 100 }, 0.1),
      ],
      rate,
      width,
      0,
      "minimize",
    );
    expect(placed.map(({ trial: { number }, x, y, rank }) => [number, Number(x.toFixed(9)), y, rank])).toEqual([
      [1, 1, 0, 0],
      [0, 0.5, 0.5, 0.5],
      [2, 0, 1, 1],
    ]);
  });

  it("keeps choices in bands of their own", () => {
    const { field, placed } = surfaceOf(trials, rate, kind, 0, "maximize");
    // From the bottom: sgd, then adam.
    expect(valueIn(field, 0.9, 0.25)).toBeLessThan(0.35);
    expect(valueIn(field, 0.9, 0.75)).toBeGreaterThan(0.65);
    expect(valueIn(field, 0.1, 0.25)).toBeGreaterThan(0.65);
    for (const { trial: one, y } of placed) expect(y > 0.5).toBe(one.number % 2 === 1);
    expect(textAt(kind, 0.2)).toBe("sgd");
    expect(textAt(kind, 1)).toBe("adam");
    expect(textAt(rate, 0.5)).toBe("0.01");
  });

  it("takes ranks back to values, and leaves out who lacks a parameter or a value", () => {
    const { placed, valueOf } = surfaceOf(
      [
        trial(0, { rate: 0.01, width: 1 }, 4),
        trial(1, { rate: 0.01, width: 2 }, 2),
        trial(2, { width: 3 }, 1),
        trial(3, { rate: 0.01, width: 4 }, null),
      ],
      rate,
      width,
      0,
      "minimize",
    );
    expect(placed.map((one) => one.trial.number)).toEqual([0, 1]);
    expect([0, 0.5, 1].map(valueOf)).toEqual([4, 3, 2]);
  });

  it("compares trials where all have trained as far", () => {
    const far = (number: number, early: number, late: number) =>
      trial(number, { rate: 0.01, width: number }, early, {
        outcome: { step: 9, values: [late] },
        rungs: [
          { step: 1, values: [early] },
          { step: 9, values: [late] },
        ],
      });
    const { placed, step } = surfaceOf(
      [trial(0, { rate: 0.01, width: 0 }, 0.5), far(1, 0.4, 0.9)],
      rate,
      width,
      0,
      "maximize",
    );
    expect(step).toBe(1);
    expect(placed.map(({ trial: { number }, value }) => [number, value])).toEqual([
      [1, 0.4],
      [0, 0.5],
    ]);
  });
});
