import { describe, expect, it } from "vitest";
import { everything, type Page } from "./calls";

/** Returns a list of `length` numbers in pages of 100. */
const pages =
  (length: number) =>
  (after: { continue?: string }): Promise<Page<number>> => {
    const from = Number(after.continue ?? 0);
    const to = Math.min(length, from + 100);
    return Promise.resolve({
      items: Array.from({ length: to - from }, (_, index) => from + index),
      continue: to < length ? String(to) : null,
    });
  };

describe("everything of a list", () => {
  it("is all of it, however long, in order", async () => {
    const found = await everything(pages(10_250));
    expect(found).toHaveLength(10_250);
    expect(found.every((item, index) => item === index)).toBe(true);
  });

  it("is told of page by page", async () => {
    const told: number[] = [];
    await everything(pages(250), (soFar) => told.push(soFar.length));
    expect(told).toEqual([100, 200, 250]);
  });

  it("is refused where the list runs in a circle", async () => {
    await expect(everything(() => Promise.resolve({ items: [1], continue: "same" }))).rejects.toThrow(
      "the same page again after same",
    );
  });
});
