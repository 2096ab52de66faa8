// Checkpoints that a program has declared, on the page of its job.
import { screen } from "@testing-library/react";
import { beforeEach, describe, expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";

const world = newWorld();

const program = {
  ...job(),
  spec: { version: "muster/v1", name: "train", command: { argv: ["train"] }, checkpoint: { files: "step-*", keep: 5 } },
};

const written = (step: number, metrics: Record<string, number>) => ({
  id: `c${step}`,
  step,
  epoch: 0,
  revision: 1,
  path: `step-${step}`,
  bytes: 2048,
  manifest_sha256: "",
  files: [],
  loss: null,
  accuracy: null,
  retained: true,
  kept: ["newest"],
  file_count: 2,
  metrics,
});

beforeEach(() => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(program);
  world.routes["GET /api/v1/jobs/job-1/checkpoints"] = () =>
    page(written(10, {}), written(20, { "val/f1": 0.75, loss: 1.5 }));
});

describe("the checkpoints of a program", () => {
  it("have a path, metrics and a download", async () => {
    open("/jobs/job-1?tab=checkpoints");
    const row = (await screen.findByText("step-20", {}, { timeout: 5000 })).closest("tr");
    expect(row?.textContent).toContain("val/f1 0.7500, loss 1.500");
    expect(screen.getAllByTitle("Download the checkpoint as a tar file")).toHaveLength(2);
    expect(screen.queryByText("Manifest SHA-256")).toBeNull();
  });

  it("explain themselves while there is none", async () => {
    world.routes["GET /api/v1/jobs/job-1/checkpoints"] = () => page();
    open("/jobs/job-1?tab=checkpoints");
    expect(await screen.findByText("No checkpoint is registered")).toBeTruthy();
  });

  it("are the start of a job with the same policy", async () => {
    open("/submit?from=job-1&step=10");
    const editor = await screen.findByLabelText<HTMLTextAreaElement>("Job document, YAML or JSON");
    expect(editor.value).toContain("from:\n  job: job-1\n  step: 10\n");
    for (const field of ["checkpoint:", "files:", "step-*", "keep: 5"]) expect(editor.value).toContain(field);
  });
});
