import { fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, describe, expect, it, vi } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, page } from "../test-world";

// The canvas of a chart does not exist in jsdom.
vi.mock("../../charts/plot", () => ({
  Plot: ({ label }: { label: string }) => <div role="img" aria-label={label} />,
}));

const world = newWorld();

const metric = (name: string) => ({ name, last_step: 8, last: 0.5, min: 0.25, max: 0.75, values: 8 });
const points = (request: Request) => {
  const names = new URL(request.url).searchParams.getAll("name");
  const point = { step: 8, last: 0.5, mean: 0.5, min: 0.25, max: 0.75, values: 8 };
  return page(...names.map((name) => ({ name, bucket_steps: 8, points: [point] })));
};
const charts = () => screen.getAllByRole("img").map((chart) => chart.getAttribute("aria-label"));

beforeEach(() => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job());
  world.routes["GET /api/v1/jobs/job-1/metrics"] = () =>
    page(...["lr", "train/f1", "train/loss", "val/f1", "val/loss"].map(metric));
  world.routes["GET /api/v1/jobs/job-1/metrics/points"] = points;
});

describe("the metrics of a job", () => {
  it("are grouped by prefix, and the first ones are drawn", async () => {
    open("/jobs/job-1?tab=metrics");
    expect(await screen.findByRole("group", { name: "train/" })).toBeTruthy();
    await waitFor(() => expect(charts()).toHaveLength(4));
    expect(charts()[1]).toBe("train/f1 by step: 0.5");
    expect(screen.getAllByText(/0\.25 to 0\.75 in 8.values/)).toHaveLength(4);
  });

  it("are chosen by name", async () => {
    open("/jobs/job-1?tab=metrics&metric=val/loss");
    await waitFor(() => expect(charts()).toEqual(["val/loss by step: 0.5"]));
    const boxes = await screen.findAllByRole("checkbox", { name: "f1" });
    fireEvent.click(boxes[0] as HTMLElement);
    await waitFor(() => expect(charts()).toEqual(["val/loss by step: 0.5", "train/f1 by step: 0.5"]));
    fireEvent.change(screen.getByRole("slider"), { target: { value: "0.9" } });
    expect(await screen.findAllByText("smoothed")).toHaveLength(2);
    expect(charts()).toHaveLength(2);
  });

  it("are explained where there are none", async () => {
    world.routes["GET /api/v1/jobs/job-1/metrics"] = () => page();
    open("/jobs/job-1?tab=metrics");
    expect(await screen.findByText("No metrics yet")).toBeTruthy();
  });
});
