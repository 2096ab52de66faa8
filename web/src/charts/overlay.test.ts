import { describe, expect, it } from "vitest";
import { overlay } from "./overlay";

describe("curves of several jobs", () => {
  const first = [
    { step: 30, value: 1 },
    { step: 10, value: 3 },
  ];
  const second = [{ step: 20, value: -5 }];

  it("share the steps of all, and have no value at the others' steps", () => {
    expect(overlay([first, second], 0, false)).toEqual([
      [10, 20, 30],
      [3, null, 1],
      [null, -5, null],
    ]);
  });

  it("have no place for values below 0 on a logarithmic axis", () => {
    expect(overlay([second, []], 0, true)).toEqual([[20], [null], [null]]);
  });
});
