import { describe, expect, it } from "vitest";
import { groups, metricColumns, metricRange, smooth } from "./metric";

const point = (step: number, mean: number, min = mean, max = mean) => ({ step, last: mean, mean, min, max, values: 1 });

describe("smoothing", () => {
  it("keeps constant values and changes nothing with weight 0", () => {
    expect(smooth([2, 2, 2], 0.9).map((value) => value.toFixed(6))).toEqual(["2.000000", "2.000000", "2.000000"]);
    expect(smooth([1, 5, 3], 0)).toEqual([1, 5, 3]);
  });

  it("weighs earlier values and is not drawn to 0 at the beginning", () => {
    const [first, second] = smooth([4, 1], 0.5);
    expect(first).toBe(4);
    expect(second).toBeCloseTo((0.25 * 4 + 0.5 * 1) / 0.75);
  });
});

describe("columns of a metric", () => {
  it("are ordered by step and contain the range of the values", () => {
    const columns = metricColumns([point(8, 3, 2, 5), point(4, 1, 0, 2)], 0, false);
    expect(columns).toEqual([
      [4, 8],
      [1, 3],
      [1, 3],
      [2, 5],
      [0, 2],
    ]);
  });

  it("have no place for values at or below 0 on a logarithmic axis", () => {
    const columns = metricColumns([point(1, 0.5, -1, 2)], 0, true);
    expect(columns).toEqual([[1], [0.5], [0.5], [2], [null]]);
  });

  it("have a range with a margin, or whole decades", () => {
    expect(metricRange(0, 1, false)).toEqual([-0.08, 1.08]);
    expect(metricRange(5, 5, false)).toEqual([4.5, 5.5]);
    expect(metricRange(0.02, 30, true)).toEqual([0.01, 100]);
  });
});

describe("groups of metrics", () => {
  it("are by the part before the first slash", () => {
    const found = groups(["val/f1", "lr", "train/loss", "train/f1/macro"]);
    expect(found).toEqual([
      { prefix: "", names: ["lr"] },
      { prefix: "train", names: ["train/f1/macro", "train/loss"] },
      { prefix: "val", names: ["val/f1"] },
    ]);
  });
});
