import { describe, expect, it } from "vitest";
import { importance } from "./forest";

/**
 * A lattice that fills the square evenly, so that features are independent without random numbers.
 */
const rows = Array.from({ length: 120 }, (_, index) => [
  (index * 0.754_877_666) % 1,
  (index * 0.569_840_29) % 1,
  (index * 0.381_966) % 1,
]);

describe("permutation importance", () => {
  it("finds the feature that decides, also where it does not rise or fall steadily", () => {
    const found = importance(
      rows,
      rows.map(([x = 0, y = 0]) => (x - 0.5) ** 2 + 0.05 * y),
    );
    if (found === null) throw new Error("nothing found");
    const [x = 0, y = 0, z = 0] = found.features;
    expect(x).toBeGreaterThan(0.8);
    expect(y).toBeLessThan(x / 4);
    expect(Math.abs(z)).toBeLessThan(0.1);
    expect(found.explained).toBeGreaterThan(0.6);
  });

  it("says that noise explains nothing", () => {
    const found = importance(
      rows,
      rows.map((_, index) => (Math.sin(index * 12_345.678) * 43_758.5453) % 1),
    );
    expect(found?.explained).toBeLessThan(0.2);
  });

  it("gives the same numbers every time", () => {
    const targets = rows.map(([x = 0]) => x);
    expect(importance(rows, targets)).toEqual(importance(rows, targets));
  });

  it("gives nothing for equal targets or too few rows", () => {
    expect(
      importance(
        rows,
        rows.map(() => 1),
      ),
    ).toBeNull();
    expect(importance(rows.slice(0, 4), [1, 2, 3, 4])).toBeNull();
  });
});
