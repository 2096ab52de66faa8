import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, it } from "vitest";
import { job } from "../../live/test-data";
import { json, newWorld, open, page, problem } from "../test-world";

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

const BATCH = {
  name: "batch",
  description: "",
  lowest: -50,
  highest: -1,
  default: -20,
  roles: ["member"],
  tenants: [],
};
const URGENT = { ...BATCH, name: "urgent", lowest: 10, highest: 50, default: 10, tenants: ["vision"] };
const SPEECH = { ...BATCH, name: "speech", lowest: 0, highest: 9, default: 0, tenants: ["speech"] };

/** Answers with this job and three classes, one of another tenant. Returns the changes sent. */
function withClasses(fields: Parameters<typeof job>[0]): unknown[] {
  const sent: unknown[] = [];
  const shown = job({ id: "job-1", workers: { running: 1, min: 1, max: 4 }, ...fields });
  world.routes["GET /api/v1/jobs/job-1"] = () => json(shown);
  world.routes["GET /api/v1/priority-classes"] = () => page(BATCH, SPEECH, URGENT);
  world.routes["PATCH /api/v1/jobs/job-1"] = async (request) => {
    sent.push(await request.json());
    return json(shown, 202);
  };
  return sent;
}

async function dialog() {
  open("/jobs/job-1");
  fireEvent.click(await screen.findByRole("button", { name: "Change" }));
  const shown = within(screen.getByRole("dialog"));
  const choice = await shown.findByLabelText<HTMLSelectElement>("Priority class");
  const number = shown.getByLabelText<HTMLInputElement>("Priority");
  const type = (field: HTMLElement, value: string) => fireEvent.change(field, { target: { value } });
  const go = () => fireEvent.click(shown.getByRole("button", { name: "Change" }));
  return { shown, choice, number, type, go };
}

it("offers the classes of the job's tenant, and sends the chosen class with its default", async () => {
  const sent = withClasses({ priority: 0, edits: 2 });
  const { choice, number, type, go } = await dialog();
  const options = [...choice.options].map((option) => option.text);
  expect(options).toEqual(["none", "batch (-50 to -1)", "urgent (10 to 50)"]);
  type(choice, "urgent");
  expect(number.value).toBe("10");
  go();
  const workers = { min: 1, max: 4 };
  await waitFor(() => expect(sent).toEqual([{ workers, priority: 10, priority_class: "urgent", edits: 2 }]));
});

it("shows why the API refuses a priority", async () => {
  withClasses({ priority: 20, priority_class: "urgent" });
  const detail = "priority is 60; expected 10 to 50, the range of priority class urgent";
  world.routes["PATCH /api/v1/jobs/job-1"] = () => problem(422, "The job document is not valid", detail);
  const { shown, choice, number, type, go } = await dialog();
  expect(choice.value).toBe("urgent");
  type(number, "60");
  go();
  expect((await shown.findByRole("alert")).textContent).toContain(detail);
});

it("keeps the priority and the class of a job whose class was deleted or narrowed", async () => {
  const sent = withClasses({ priority: 90, priority_class: "repair" });
  const { choice, type, go } = await dialog();
  expect(choice.selectedOptions[0]?.text).toBe("repair (not available any more)");
  type(choice, "batch");
  type(choice, "repair");
  go();
  await waitFor(() => expect(sent).toEqual([{ workers: { min: 1, max: 4 }, priority: 90, edits: 0 }]));
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
