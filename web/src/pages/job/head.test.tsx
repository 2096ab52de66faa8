import { screen } from "@testing-library/react";
import { expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open } from "../test-world";

const world = newWorld();

it("shows the priority with its class", async () => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job({ id: "job-1", priority: 20, priority_class: "urgent" }));
  open("/jobs/job-1");
  expect((await screen.findByTitle("Jobs of a higher priority come first")).textContent).toBe("priority 20 (urgent)");
});

it("shows the class of a job whose number is 0", async () => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job({ id: "job-1", priority: 0, priority_class: "normal" }));
  open("/jobs/job-1");
  expect((await screen.findByTitle("Jobs of a higher priority come first")).textContent).toBe("priority 0 (normal)");
});

it("shows no priority of a plain job", async () => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job({ id: "job-1", name: "plain" }));
  open("/jobs/job-1");
  await screen.findByRole("heading", { name: "plain" });
  expect(screen.queryByTitle("Jobs of a higher priority come first")).toBeNull();
});
