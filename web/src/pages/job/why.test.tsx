// The page of a running job explains its size by the newest round.
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open } from "../test-world";

const world = newWorld();

/** Shows the page of a running job whose newest round predicted this batch. */
function show(batch: unknown) {
  const shown = job({ id: "job-1", phase: "running" });
  const decided = {
    round: 7,
    at: "2027-01-15T08:00:07Z",
    why: "has the most workers",
    workers: 1,
    ps_shards: 0,
    next_worker_gain: null,
    runner_up: null,
    steps_per_s: 18,
    batch,
    measured_sizes: 1,
    speed_error: null,
    steps_left: 900,
    steps_left_between: null,
    time_left_s: 50,
  };
  const explanation = { job_id: "job-1", name: shown.name, phase: "running", decided, waiting: null };
  world.routes["GET /api/v1/jobs/job-1"] = () => json(shown);
  world.routes["GET /api/v1/jobs/job-1/explain"] = () =>
    json({ ...explanation, in_the_way: { jobs: [], nodes: [], quota: null } });
  open("/jobs/job-1");
}

it("states the predicted batch and what it saves", async () => {
  const message = "batch 512 instead of 128: 1.8 times the progress (predicted)";
  const detail = { batch: 512, smallest_batch: 128, steps_per_s: 18, smallest_steps_per_s: 10 };
  show({ message, detail });
  const said = await screen.findByText(message);
  expect(said.previousElementSibling?.textContent).toBe("Batch");
});

it("states no batch if none was predicted", async () => {
  show(null);
  await screen.findByText("has the most workers");
  expect(screen.queryByText("Batch")).toBeNull();
});
