// The page of a failed job shows the last output of the task that failed.
import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { job, task } from "../../live/test-data";
import { json, newWorld, open } from "../test-world";
import { failedTask } from "./failed";

const world = newWorld();

it("shows the last output of the task that failed", async () => {
  const failed = job({ id: "job-1", phase: "failed", failure: "worker-1 exited with code 3: boom", progress: null });
  const tasks = [task(0), task(1)];
  world.routes["GET /api/v1/jobs/job-1"] = () => json(failed);
  world.routes["GET /api/v1/jobs/job-1/tasks"] = () => json({ items: tasks, continue: null });
  world.routes["GET /api/v1/jobs/job-1/logs"] = () => new Response("10 %\r90 %\n\u001b[31mboom\u001b[0m\n");
  open("/jobs/job-1");
  expect(await screen.findByText("Last output of worker-1")).toBeDefined();
  expect((await screen.findByText("boom", { selector: "span" })).className).toBe("ansi-1");
  expect(screen.getByText("90 %")).toBeDefined();
});

it("finds the task that the failure names", () => {
  const tasks = [task(0), task(1)];
  const of = (failure: string | null) => failedTask(job({ phase: "failed", failure }), tasks)?.id;
  expect(of("worker-1 exited with code 3")).toBe("task-1");
  expect(of("no reason")).toBe("task-0");
  expect(failedTask(job({ phase: "running" }), tasks)).toBeUndefined();
});
