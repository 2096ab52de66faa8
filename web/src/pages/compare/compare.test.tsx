// Comparison of jobs: rows, curves, and the way from the list.
import { fireEvent, screen, within } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";
import { ofEngine } from "./curves";
import { fields, metricNames, results } from "./rows";

const world = newWorld();

const first = job({ id: "job-1", name: "small" });
const second = job({
  id: "job-2",
  name: "large",
  phase: "failed",
  failure: "exit code 3",
  progress: null,
  spec: { ...job().spec, name: "large", retries: 7 },
});

describe("a comparison", () => {
  it("names fields by path and marks those that differ", () => {
    const rows = fields([first, second]);
    expect(rows.find(({ name }) => name === "engine.model.hidden")?.values).toEqual(["32", "32"]);
    const names = rows.filter(({ differs }) => differs).map(({ name }) => name);
    expect(names).toContain("name");
    expect(names).toContain("retries");
    expect(names).not.toContain("engine.batch");
  });

  it("tells lists apart that have the same text", () => {
    const argv = (words: string[]) =>
      job({ spec: { version: "muster/v1", name: "x", command: { argv: words } } as unknown as typeof first.spec });
    const [row] = fields([argv(["sh", "a b"]), argv(["sh", "a", "b"])]).filter(({ name }) => name === "command.argv");
    expect(row?.differs).toBe(true);
  });

  it("leaves out results that no job has", () => {
    const rows = results([first, second]);
    expect(rows.find(({ name }) => name === "failure")?.values).toEqual([null, "exit code 3"]);
    expect(rows.find(({ name }) => name === "evaluation accuracy")?.values).toEqual(["test 48.00\u202f%", null]);
    expect(rows.some(({ name }) => name === "run time")).toBe(false);
  });

  it("lists metrics of most jobs first", () => {
    const metric = (name: string) => ({ name, last: 1, last_step: 1, max: 1, min: 1, values: 1 });
    expect(
      metricNames([
        [metric("b"), metric("z")],
        [metric("z"), metric("a")],
      ]),
    ).toEqual(["z", "a", "b"]);
  });

  it("leaves out curves of the engine without values", () => {
    const curves = ofEngine({ samples: [], evaluations: [] });
    expect([...curves]).toEqual([]);
  });
});

describe("the page", () => {
  it("is reached from chosen jobs of the list", async () => {
    world.routes["GET /api/v1/jobs"] = () => page(first, second);
    world.routes["GET /api/v1/jobs/job-1"] = () => json(first);
    world.routes["GET /api/v1/jobs/job-2"] = () => json(second);
    world.routes["GET /api/v1/jobs/job-1/metrics"] = () => page();
    world.routes["GET /api/v1/jobs/job-2/metrics"] = () => page();
    const noCurve = () => json({ samples: [], evaluations: [] });
    world.routes["GET /api/v1/jobs/job-1/progress"] = noCurve;
    world.routes["GET /api/v1/jobs/job-2/progress"] = noCurve;
    open("/jobs");
    fireEvent.click(await screen.findByRole("checkbox", { name: "Choose small" }));
    const selection = await screen.findByRole("region", { name: "Chosen jobs" });
    expect(within(selection).queryByRole("link", { name: "Compare" })).toBeNull();
    fireEvent.click(screen.getByRole("checkbox", { name: "Choose large" }));
    fireEvent.click(within(selection).getByRole("link", { name: "Compare" }));
    await screen.findByRole("heading", { name: "Documents" });
    const row = screen.getByRole("rowheader", { name: "retries" }).closest("tr");
    expect(row?.textContent).toContain("7");
    expect(screen.queryByRole("rowheader", { name: "engine.batch" })).toBeNull();
  });

  it("asks before it cancels the chosen open jobs", async () => {
    world.routes["GET /api/v1/jobs"] = () => page(first, second);
    world.routes["POST /api/v1/jobs/job-1/cancel"] = () => json(first);
    open("/jobs");
    fireEvent.click(await screen.findByRole("checkbox", { name: "Choose small" }));
    fireEvent.click(screen.getByRole("checkbox", { name: "Choose large" }));
    fireEvent.click(screen.getByRole("button", { name: /Cancel 1.open job/ }));
    const asked = () => world.asked.filter(({ method }) => method === "POST").map(({ url }) => new URL(url).pathname);
    expect(asked()).toEqual([]);
    fireEvent.click(await screen.findByRole("button", { name: "Cancel them" }));
    await screen.findByRole("checkbox", { name: "Choose small" });
    expect(asked()).toEqual(["/api/v1/jobs/job-1/cancel"]);
  });

  it("shows only own jobs and no trials if the user wants", async () => {
    open("/jobs?mine=1&trials=0");
    await screen.findByRole("link", { name: "fashion-cnn" });
    const request = world.asked.find(({ url }) => url.includes("/api/v1/jobs?limit=50&"));
    expect(request?.url).toContain("user=ada");
    expect(request?.url).toContain("trials=false");
  });
});
