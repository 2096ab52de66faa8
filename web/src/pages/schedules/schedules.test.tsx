// The page of schedules: planned times, results, and the actions.
import { fireEvent, screen, waitFor } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { at, job } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";

const world = newWorld();

const schedule = (name: string, change: object = {}) => ({
  name,
  document: { cron: "0 3 * * *", time_zone: "Europe/Berlin", catch_up: "latest", overlap: "skip", job: {} },
  owner: "ada",
  paused: null,
  next: [{ at: at(60), local: "2026-03-29 03:00 CEST" }],
  last: null,
  last_job: null,
  created_at: at(0),
  updated_at: at(0),
  ...change,
});

const asked = (method: string) => world.asked.filter((request) => request.method === method);

describe("the page of schedules", () => {
  it("shows planned times, jobs and the reason of a refusal", async () => {
    const refused = {
      planned_at: at(0),
      at: at(1),
      result: { kind: "refused", reason: "limit open_jobs of the tenant" },
    };
    world.routes["GET /api/v1/schedules"] = () => page(schedule("nightly", { last: refused }));
    world.routes["GET /api/v1/jobs"] = () => page(job());
    open("/schedules");
    expect(await screen.findByText("2026-03-29 03:00 CEST")).toBeTruthy();
    expect(screen.getByText(/Refused .* ago: limit open_jobs/)).toBeTruthy();
    const all = await screen.findByRole("link", { name: "All jobs" });
    expect(all.getAttribute("href")).toBe("/jobs?label=schedule%3Dnightly");
  });

  it("pauses, resumes and runs a schedule", async () => {
    world.routes["GET /api/v1/schedules"] = () =>
      page(schedule("on"), schedule("off", { paused: "by_user", next: [] }));
    world.routes["GET /api/v1/jobs"] = () => page();
    world.routes["POST /api/v1/schedules/on/pause"] = () => json(schedule("on"));
    world.routes["POST /api/v1/schedules/off/resume"] = () => json(schedule("off"));
    world.routes["POST /api/v1/schedules/off/run"] = () => json(job());
    open("/schedules");
    fireEvent.click(await screen.findByRole("button", { name: "Pause" }));
    fireEvent.click(screen.getByRole("button", { name: "Resume" }));
    await waitFor(() => expect(asked("POST")).toHaveLength(2));
    const runs = screen.getAllByRole<HTMLButtonElement>("button", { name: "Run now" });
    await waitFor(() => expect(runs.every((run) => !run.disabled)).toBe(true));
    runs.slice(1).forEach((run) => fireEvent.click(run));
    await waitFor(() => expect(asked("POST")).toHaveLength(3));
    const paths = asked("POST").map((request) => new URL(request.url).pathname.replace("/api/v1/schedules/", ""));
    expect(paths).toEqual(["on/pause", "off/resume", "off/run"]);
  });

  it("asks before it deletes", async () => {
    world.routes["GET /api/v1/schedules"] = () => page(schedule("nightly"));
    world.routes["GET /api/v1/jobs"] = () => page();
    world.routes["DELETE /api/v1/schedules/nightly"] = () => new Response(null, { status: 204 });
    open("/schedules");
    fireEvent.click(await screen.findByRole("button", { name: "Delete" }));
    expect(asked("DELETE")).toEqual([]);
    fireEvent.click(screen.getByRole("button", { name: "Delete it" }));
    await waitFor(() => expect(asked("DELETE")).toHaveLength(1));
  });
});
