import { cleanup, render, screen, within } from "@testing-library/react";
import { MemoryRouter } from "react-router";
import { afterEach, expect, it } from "vitest";
import type { TaskView, Verdict } from "../../api/types";
import { at, stored, task } from "../../live/test-data";
import { Tasks } from "./tasks";

afterEach(cleanup);

it("shows how fast each worker is by itself, and which of them holds the others up", () => {
  const pace = { step: 40, doing: "working" as const, heard_at: at(9), moved_at: at(9) };
  const even: TaskView = { ...task(0), pace: { ...pace, own_ms: 12.5, of_median: 1, suspected: null } };
  const slow: TaskView = {
    ...task(1),
    pace: { ...pace, own_ms: 31, of_median: 0.4, suspected: { of: "straggler", since: at(5) } },
  };
  const reload = () => undefined;
  const resource = { data: [even, slow, task(2)], error: null, loading: false, reload, update: reload };
  render(
    <MemoryRouter>
      <Tasks resource={resource} revision={1} events={[]} />
    </MemoryRouter>,
  );
  const [, first, second, third] = screen.getAllByRole("row");
  expect(first?.textContent).toContain("12.5 ms100 % of the median rate");
  expect(first?.textContent).not.toContain("straggler");
  expect(second?.textContent).toContain("31.0 ms40 % of the median rateLooks like a straggler for");
  expect(third?.textContent).not.toContain("median");
});

it("shows the evidence that a running program is idle", () => {
  const idle = { since: at(5), evidence: "no output, no CPU use for 2 min" };
  const resource = { data: [{ ...task(0), idle }, task(1)], error: null, loading: false };
  const reload = () => undefined;
  render(
    <MemoryRouter>
      <Tasks resource={{ ...resource, reload, update: reload }} revision={1} events={[]} />
    </MemoryRouter>,
  );
  const [, first, second] = screen.getAllByRole("row");
  expect(first?.textContent).toContain("Idle: no output, no CPU use for 2 min");
  expect(second?.textContent).not.toContain("Idle");
});

const judged = (seconds: number, finding: Verdict["finding"], message: string) => {
  const verdict: Verdict = {
    task_id: "task-1",
    role: { kind: "worker", rank: 1 },
    node_id: "node-a",
    node: "node-a",
    finding,
    for_ms: 60_000,
    remedy: "left_out",
  };
  const detail = "the others continue without it";
  return stored(seconds, { kind: "rank_judged", verdict }, "job-1", { message, detail });
};

it("tells the pace of a task that holds up the others, the newest finding, and of no other", () => {
  const events = [
    judged(10, { kind: "hang", step: 40, silent_ms: 9000 }, "worker-1 hangs"),
    judged(20, { kind: "straggler", own_us: 42_000, median_us: 12_500 }, "worker-1 is a straggler"),
  ];
  const reload = () => undefined;
  render(
    <MemoryRouter>
      <Tasks
        resource={{ data: [task(0), task(1)], error: null, loading: false, reload, update: reload }}
        revision={1}
        events={events}
      />
    </MemoryRouter>,
  );
  const slow = within(screen.getByRole("rowheader", { name: "worker-1" }).closest("tr") ?? document.body);
  expect(slow.getByText("worker-1 is a straggler").title).toBe("the others continue without it");
  const other = screen.getByRole("rowheader", { name: "worker-0" }).closest("tr");
  expect(other?.textContent).not.toContain("straggler");
});

it("shows how a task ended", () => {
  const outcome = { kind: "exited" as const, code: 3 };
  const ended: TaskView = {
    ...task(0),
    state: { phase: "released", outcome },
    outcome: 'exited with code 3, saying "no data"',
    released_at: at(9),
  };
  const reload = () => undefined;
  render(
    <MemoryRouter>
      <Tasks
        resource={{ data: [ended], error: null, loading: false, reload, update: reload }}
        revision={1}
        events={[]}
      />
    </MemoryRouter>,
  );
  expect(screen.getByText('exited with code 3, saying "no data"').className).toBe("bad");
});

it("tells who shares the GPU of a task, how fast it is there, and what it uses", () => {
  const shared: TaskView = {
    ...task(0),
    shared_with: "job-2",
    rate_beside: 0.655,
    usage: { peak_bytes: 1.5 * 2 ** 30, busy_alone: 0.5 },
  };
  const reload = () => undefined;
  const resource = { data: [shared, task(1)], error: null, loading: false, reload, update: reload };
  render(
    <MemoryRouter>
      <Tasks resource={resource} revision={1} events={[]} />
    </MemoryRouter>,
  );
  const [, first, second] = screen.getAllByRole("row");
  expect(first?.textContent).toContain("beside another job, at 66 % of its rate alone");
  expect(
    within(first as HTMLElement)
      .getByRole("link", { name: "another job" })
      .getAttribute("href"),
  ).toBe("/jobs/job-2");
  expect(
    within(first as HTMLElement).getByTitle(/1.5.GiB of memory at most, busy 50 % of the time alone/),
  ).toBeTruthy();
  expect(second?.textContent).not.toContain("beside");
});
