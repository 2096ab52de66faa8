import { describe, expect, it } from "vitest";
import { budgetText, goalText, isOver, metricText, parameterText, searchText } from "./study";
import { search } from "../pages/study/test-data";

describe("studies in words", () => {
  it("says what is sought, with a target in the metric's own form", () => {
    expect(goalText([{ metric: "test_accuracy", goal: "maximize", target: 0.9 }])).toBe(
      "maximize test_accuracy to 90.00\u202F%",
    );
    expect(
      goalText([
        { metric: "test_loss", goal: "minimize" },
        { metric: "examples_per_s", goal: "maximize", target: null },
      ]),
    ).toBe("minimize test_loss, maximize examples_per_s");
  });

  it("shows only the accuracies of jobs as percent", () => {
    const names = ["train_accuracy", "test_loss", "val/f1", "val/accuracy"];
    expect(names.map((name) => metricText(name, 0.8765))).toEqual(["87.65\u202F%", "0.8765", "0.8765", "0.8765"]);
    expect([metricText("val/accuracy", 87.65), metricText("x", null)]).toEqual(["87.65", "–"]);
  });

  it("says how is searched, and no stopper where there is none", () => {
    expect(searchText(search())).toBe("random, asha; up to 9\u00A0epochs a trial, 4 at a time");
    expect(searchText({ ...search(), stopper: { kind: "none" } })).toBe(
      "random; up to 9\u00A0epochs a trial, 4 at a time",
    );
    expect(searchText({ ...search(), searcher: { kind: "cma_es" } })).toContain("cma es, asha");
    expect(budgetText({ ...search(), budget: { max: 1, unit: "steps" } }, 1)).toBe("1\u00A0step");
  });

  it("keeps what tells parameters apart, and shows lists whole", () => {
    expect([0.012345678, 1e-7 / 3, 128, "adam", [64, 32], true, undefined].map(parameterText)).toEqual([
      "0.01235",
      "3.333e-8",
      "128",
      "adam",
      "[64,32]",
      "true",
      "–",
    ]);
  });

  it("knows which phases are the last", () => {
    expect((["created", "running", "paused", "closing", "finished", "cancelled"] as const).filter(isOver)).toEqual([
      "finished",
      "cancelled",
    ]);
  });
});
