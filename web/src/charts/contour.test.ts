import { describe, expect, it } from "vitest";
import { BANDS, bandOf, cutAt, levelOf, patchesOf, shade, type Patch } from "./contour";
import { fieldOf, rangeOf, valueIn, type Spot } from "./field";

/**
 * Points spread evenly over the square without a grid: an additive recurrence of low discrepancy
 * (Roberts, 2018).
 */
const spots = (count: number, z: (x: number, y: number) => number): Spot[] =>
  Array.from({ length: count }, (_, index) => {
    const [x, y] = [((index + 1) * 0.754_877_666) % 1, ((index + 1) * 0.569_840_29) % 1];
    return { x, y, z: z(x, y) };
  });

describe("a smoothed field", () => {
  it("follows values that change smoothly", () => {
    const hill = (x: number, y: number) => Math.exp(-((x - 0.3) ** 2 + (y - 0.6) ** 2) / 0.2);
    const field = fieldOf(spots(400, hill), "numbers", "numbers");
    for (const [x, y] of [
      [0.3, 0.6],
      [0.8, 0.2],
      [0.5, 0.5],
      [0.1, 0.9],
    ] as const)
      expect(Math.abs((valueIn(field, x, y) ?? NaN) - hill(x, y))).toBeLessThan(0.1);
    const best = field.values.indexOf(Math.max(...field.values));
    expect((best % field.columns) / (field.columns - 1)).toBeCloseTo(0.3, 1);
    expect(Math.floor(best / field.columns) / (field.rows - 1)).toBeCloseTo(0.6, 1);
  });

  it("stays within the values, and is even where they are", () => {
    const [low, high] = rangeOf(
      fieldOf(
        spots(60, (x, y) => Math.sin(40 * x) + Math.cos(55 * y)),
        "numbers",
        "numbers",
      ),
    ) ?? [NaN, NaN];
    expect(low).toBeGreaterThan(-2);
    expect(high).toBeLessThan(2);
    expect(low).toBeLessThan(high);
    const even = rangeOf(
      fieldOf(
        spots(60, () => 0.4),
        "numbers",
        "numbers",
      ),
    ) ?? [NaN, NaN];
    expect(even[0]).toBeCloseTo(0.4, 12);
    expect(even[1]).toBeCloseTo(0.4, 12);
  });

  it("smooths noise away rather than to make hills of it", () => {
    const noise = spots(300, (x, y) => x + ((Math.sin(x * 12_345.6 + y * 9876.5) * 43_758.5453) % 1) * 0.3);
    const field = fieldOf(noise, "numbers", "numbers");
    for (const x of [0.2, 0.5, 0.8]) expect(Math.abs((valueIn(field, x, 0.5) ?? NaN) - x)).toBeLessThan(0.12);
  });

  it("says nothing of where no trial is near", () => {
    const corner = fieldOf(
      spots(200, () => 1).map((spot) => ({ ...spot, x: spot.x * 0.2, y: spot.y * 0.2 })),
      "numbers",
      "numbers",
    );
    expect(valueIn(corner, 0.1, 0.1)).toBeCloseTo(1, 9);
    expect(valueIn(corner, 0.9, 0.9)).toBeNull();
    expect(rangeOf(fieldOf([], "numbers", "numbers"))).toBeNull();
  });

  it("keeps the choices of an axis apart", () => {
    const kinds = spots(300, (_, y) => y).map((spot, index) => ({
      x: index % 3,
      y: spot.y,
      z: index % 3 === 1 ? 1 - spot.y : spot.y,
    }));
    const field = fieldOf(kinds, { choices: 3 }, "numbers");
    expect(field.columns).toBe(3);
    for (const [x, expected] of [
      [0.1, 0.9],
      [0.5, 0.1],
      [0.9, 0.9],
    ] as const)
      expect(Math.abs((valueIn(field, x, 0.9) ?? NaN) - expected)).toBeLessThan(0.1);
    const never = fieldOf(kinds, { choices: 4 }, "numbers");
    expect(valueIn(never, 0.99, 0.5)).toBeNull();
    const both = fieldOf(
      [
        { x: 0, y: 1, z: 0.25 },
        { x: 1, y: 0, z: 0.75 },
      ],
      { choices: 2 },
      { choices: 2 },
    );
    expect(valueIn(both, 0.2, 0.2)).toBeNull();
    expect(valueIn(both, 0.2, 0.8)).toBeLessThan(valueIn(both, 0.8, 0.2) ?? NaN);
  });
});

describe("the areas of a field", () => {
  const patch = (columns: number, rows: number, at: (column: number, row: number) => number): Patch => ({
    left: 0,
    right: 1,
    bottom: 0,
    top: 1,
    columns,
    rows,
    at,
  });
  const covered = (of: Patch, level: number) => cutAt(of, level).areas.reduce((sum, area) => sum + surface(area), 0);
  const surface = (area: readonly (readonly [number, number])[]) =>
    area.reduce((sum, [x, y], index) => {
      const [nextX, nextY] = area[(index + 1) % area.length] ?? [x, y];
      return sum + (x * nextY - nextX * y) / 2;
    }, 0);

  it("end exactly at the level of a plane", () => {
    const plane = patch(5, 9, (column) => column / 4);
    for (const level of [-Infinity, 0.1, 0.5, 0.83])
      expect(covered(plane, level)).toBeCloseTo(1 - Math.max(0, level), 9);
    expect(covered(plane, 1.1)).toBe(0);
    const { lines } = cutAt(plane, 0.6);
    expect(lines).toHaveLength(8);
    for (const [from, to] of lines)
      expect([from[0], to[0]]).toEqual([expect.closeTo(0.6, 9) as number, expect.closeTo(0.6, 9) as number]);
  });

  it("of a saddle are bordered round each corner that is below", () => {
    const saddle = patch(2, 2, (column, row) => (column === row ? 1 : 0));
    const { areas, lines } = cutAt(saddle, 0.3);
    expect(areas).toHaveLength(1);
    expect(covered(saddle, 0.3)).toBeCloseTo(1 - 0.3 ** 2, 9);
    expect(lines).toHaveLength(2);
    for (const [[x0, y0], [x1, y1]] of lines) expect(Math.hypot(x1 - x0, y1 - y0)).toBeCloseTo(0.3 * Math.SQRT2, 9);
  });

  it("leave out what is not known", () => {
    expect(
      covered(
        patch(3, 2, (column) => (column === 2 ? NaN : 1)),
        0.5,
      ),
    ).toBeCloseTo(0.5, 9);
  });

  it("of choices are bands", () => {
    const patches = patchesOf(
      fieldOf(
        [
          { x: 0, y: 0.5, z: 1 },
          { x: 1, y: 0.5, z: 0 },
        ],
        { choices: 2 },
        "numbers",
      ),
    );
    expect(patches.map(({ left, right, bottom, top }) => [left, right, bottom, top])).toEqual([
      [0, 0.5, 0, 1],
      [0.5, 1, 0, 1],
    ]);
    expect(patches[0]?.at(0, 32)).toBe(patches[0]?.at(1, 32));
    expect(patches[0]?.at(0, 32)).toBeGreaterThan(patches[1]?.at(0, 32) ?? NaN);
  });
});

describe("bands", () => {
  it("are as wide as each other, and the first and last take what is outside", () => {
    const range = [2, 11] as const;
    expect([1, 2, 2.9, 3.1, 10.9, 11, 12].map((value) => bandOf(value, range))).toEqual([0, 0, 0, 1, 8, 8, 8]);
    expect(levelOf(0, range)).toBe(2);
    expect(levelOf(BANDS, range)).toBe(11);
    expect(bandOf(5, [5, 5])).toBe(4);
  });

  it("have the colours of the ramp, and those between", () => {
    const inks = { ramp: ["#000000", "#ff0000", "#00ff00", "#0000ff", "#ffffff"], mark: "#888888" };
    expect(shade(inks, 0)).toBe("#000000");
    expect(shade(inks, 1)).toBe("rgb(128 0 0)");
    expect(shade(inks, 8)).toBe("#ffffff");
  });
});
