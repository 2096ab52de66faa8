import { describe, expect, it } from "vitest";
import { sample } from "../live/test-data";
import { curve, noise, phases } from "./curves";

describe("gradient noise", () => {
  it("is drawn over the samples in which it was measured, beside the examples of an update", () => {
    const samples = [
      sample(10, 1),
      sample(20, 2, { noise_scale: 400, examples_per_s: 1280, steps_per_s: 10 }),
      sample(30, 3, { noise_scale: null }),
      sample(50, 4, { noise_scale: 900, examples_per_s: 2560, steps_per_s: 20, gain: 2 }),
    ];
    expect(noise(samples, "step")).toEqual([
      [20, 50],
      [400, 900],
      [128, 256],
    ]);
    expect(noise(samples.slice(0, 1), "time")).toEqual([[], [], []]);
  });

  it("has no batch where nothing was done, and no place for what is no number", () => {
    const samples = [sample(10, 1, { noise_scale: 5, steps_per_s: 0 }), sample(20, 2, { noise_scale: Infinity })];
    expect(noise(samples, "step")).toEqual([[10], [5], [null]]);
  });
});

describe("numbers that were not logged", () => {
  const bare = sample(10, 1, { accuracy: null, compute_ms: null, exchange_ms: null, data_ms: null });

  it("are no points of a curve", () => {
    const evaluation = { at: bare.at, step: 10, epoch: 0, split: "validation" as const, loss: 0.5, accuracy: null };
    expect(curve([bare], [evaluation], "step", "accuracy")).toEqual([[10], [null], [null]]);
    expect(curve([bare], [evaluation], "step", "loss")).toEqual([[10], [1], [0.5]]);
  });

  it("take no time of a step", () => {
    expect(phases([bare, sample(20, 2)], "step")).toEqual([[20], [9], [8], [5]]);
    expect(phases([bare], "time")).toEqual([[], [], [], []]);
  });
});
