import { describe, expect, it } from "vitest";
import { lineAt } from "./learning";
import { padded, place, scaleOf, ticks, valueAt } from "./scale";

describe("scales", () => {
  it("hold what is finite, and on a log scale what is above 0", () => {
    expect(scaleOf([3, null, NaN, Infinity, 1], false)).toEqual({ log: false, min: 1, max: 3 });
    expect(scaleOf([0, -1, 10, 0.1], true)).toEqual({ log: true, min: 0.1, max: 10 });
    expect(place({ log: true, min: 0.1, max: 10 }, 0)).toBeNull();
  });

  it("give a single value room and nothing a scale at all", () => {
    const one = scaleOf([5], false);
    expect(one.min < 5 && one.max > 5).toBe(true);
    expect(scaleOf([], true)).toEqual({ log: true, min: 0.1, max: 1 });
  });

  it("come back from the place to the value", () => {
    for (const log of [false, true]) {
      const scale = padded({ log, min: 2, max: 800 }, 0.05);
      expect(valueAt(scale, place(scale, 37) ?? NaN)).toBeCloseTo(37, 9);
    }
  });

  it("have round ticks", () => {
    expect(ticks({ log: false, min: 0.13, max: 0.92 }, 4)).toEqual([0.2, 0.4, 0.6, 0.8]);
    expect(ticks({ log: true, min: 0.0005, max: 2 }, 6)).toEqual([0.001, 0.01, 0.1, 1]);
    expect(ticks({ log: true, min: 0.03, max: 0.4 }, 6)).toEqual([0.05, 0.1, 0.2]);
    expect(ticks({ log: false, min: 1, max: 1 }, 4)).toEqual([]);
  });
});

describe("the line under the pointer", () => {
  const area = { left: 0, top: 0, right: 100, bottom: 100 };
  const scales = { x: { log: false, min: 0, max: 10 }, y: { log: false, min: 0, max: 1 } };
  const lines = [
    { number: 1, rank: 0, xs: [0, 10], ys: [0, 1] },
    { number: 2, rank: 1, xs: [0, 5], ys: [1, 1] },
    { number: 3, rank: 1, xs: [0, 5, 10], ys: [0.2, null, 0.2] },
  ];
  it("is the nearest within reach, between points as well as on them", () => {
    expect(lineAt(lines, area, scales, { x: 30, y: 68 })?.number).toBe(1);
    expect(lineAt(lines, area, scales, { x: 55, y: 2 })?.number).toBe(2);
    expect(lineAt(lines, area, scales, { x: 95, y: 40 })).toBeUndefined();
  });

  it("is not one that has a gap there", () => {
    expect(lineAt(lines, area, scales, { x: 70, y: 80 })).toBeUndefined();
  });
});
