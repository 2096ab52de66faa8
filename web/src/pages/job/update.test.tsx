// The page of a job whose batch changes shows what an update is worth.
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open } from "../test-world";

const world = newWorld();

/** Shows the page of a running job with this gain of its updates. */
function show(gain: number | null) {
  const shown = job({ id: "job-1", phase: "running" });
  const progress = { ...shown.progress, examples_per_s: 5120, steps_per_s: 30, ...(gain === null ? {} : { gain }) };
  const spec = { ...shown.spec, engine: { ...shown.spec.engine, batch: 128 } };
  world.routes["GET /api/v1/jobs/job-1"] = () => json({ ...shown, progress, spec });
  open("/jobs/job-1");
}

it("shows the examples, the steps and the efficiency of an update", async () => {
  show(3);
  expect(await screen.findByText(/512 examples, worth 3\.0 steps \(75.%\)/)).toBeTruthy();
});

it("shows nothing of updates with a constant batch", async () => {
  show(null);
  await screen.findByText("Examples/s");
  expect(screen.queryByText("Update")).toBeNull();
});
