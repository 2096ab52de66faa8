import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, problem } from "../test-world";

const world = newWorld();

async function change(fields: Record<string, string>) {
  open("/jobs/job-1");
  fireEvent.click(await screen.findByRole("button", { name: "Change" }));
  const dialog = within(screen.getByRole("dialog"));
  for (const [label, value] of Object.entries(fields))
    fireEvent.change(dialog.getByLabelText(label), { target: { value } });
  fireEvent.click(dialog.getByRole("button", { name: "Change" }));
}

it("sends the range and the priority that were typed, with how often the job was changed when it was read", async () => {
  let sent: unknown = null;
  const shown = job({ id: "job-1", edits: 2, priority: 1, workers: { running: 1, min: 1, max: 4 } });
  world.routes["GET /api/v1/jobs/job-1"] = () => json(shown);
  world.routes["PATCH /api/v1/jobs/job-1"] = async (request) => {
    sent = await request.json();
    return json(shown, 202);
  };
  await change({ "Most workers": "8" });
  await waitFor(() => expect(sent).toEqual({ workers: { min: 1, max: 8 }, priority: 1, edits: 2 }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
});

it("shows why the api refused it, and stays", async () => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job({ id: "job-1" }));
  world.routes["PATCH /api/v1/jobs/job-1"] = () =>
    problem(409, "Somebody else has changed it", "the job was changed 1 times by now");
  await change({ "Fewest workers": "2" });
  const alert = await within(screen.getByRole("dialog")).findByRole("alert");
  expect(alert.textContent).toContain("the job was changed 1 times by now");
});

it("offers no change of what has ended, or is a study's trial", async () => {
  world.routes["GET /api/v1/jobs/job-1"] = () => json(job({ id: "job-1", phase: "succeeded" }));
  open("/jobs/job-1");
  await screen.findByRole("heading", { level: 1 });
  expect(screen.queryByRole("button", { name: "Change" })).toBeNull();
});
