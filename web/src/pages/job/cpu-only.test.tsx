// The page of a job without GPUs counts none and offers no suspension.
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { gpuHours } from "../../words/forecast";
import { job } from "../../live/test-data";
import { json, newWorld, open } from "../test-world";

const world = newWorld();
const message = "needs 2.0 cores and 1.0 GiB of memory for its worker; one node has at most 1.5 cores free";

const worker = {
  cpu_milli: 2000,
  memory_bytes: 2 ** 30,
  gpu_kinds: [],
  gpu_memory_bytes: null,
  compute_capability: null,
  node_selector: [],
  exclude_nodes: [],
};

/** Shows the page of a job with this number of GPUs per worker. */
function show(gpus: number, phase: "queued" | "running") {
  const waiting = {
    reason: "WaitingForCpuAndMemory",
    message,
    smallest_change: null,
    for_good: false,
    position: 1,
    detail: {
      why: {
        reason: "waiting_for_cpu_and_memory" as const,
        workers: 1,
        needed_milli: 2000,
        needed_bytes: 2 ** 30,
        largest_free_milli: 1500,
        largest_free_bytes: 2 ** 33,
        nodes: 1,
      },
      smallest_change: null,
      position: 1,
    },
  };
  const shown = job({
    id: "job-1",
    phase,
    state: { phase },
    waiting: phase === "queued" ? waiting : null,
    spec: {
      version: "muster/v1",
      name: "prepares",
      command: { argv: ["true"] },
      resources: { worker: { ...worker, gpus } },
    },
  });
  world.routes["GET /api/v1/jobs/job-1"] = () => json(shown);
  world.routes["GET /api/v1/jobs/job-1/explain"] = () =>
    json({
      job_id: "job-1",
      name: "prepares",
      phase,
      decided: null,
      waiting: shown.waiting,
      in_the_way: {
        jobs: [],
        nodes: [{ name: "node-a", gpus: 8, free_gpus: 3, why: "no_cpu_or_memory" }],
        quota: null,
      },
    });
  open("/jobs/job-1");
}

it("names CPU and memory, and no free GPUs", async () => {
  show(0, "queued");
  expect(await screen.findByText(message)).toBeTruthy();
  expect(await screen.findByText(/too little CPU or memory is free/)).toBeTruthy();
  expect(screen.queryByText("3 of 8 free")).toBeNull();
});

it("offers suspension only to a job that holds GPUs", async () => {
  show(1, "running");
  expect(await screen.findByRole("button", { name: "Suspend" })).toBeTruthy();
});

it("offers no suspension without GPUs", async () => {
  show(0, "running");
  expect(await screen.findByRole("button", { name: "Pause" })).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Suspend" })).toBeNull();
});

it("needs no GPU-hours", () => {
  expect([gpuHours(0), gpuHours(1.5)]).toEqual(["no GPU-hours", "1.5 GPU-hours"]);
});
