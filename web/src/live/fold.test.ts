import { describe, expect, it } from "vitest";
import type { Waiting } from "../api/types";
import {
  assignColours,
  foldNodes,
  foldPhases,
  isClosedByPeople,
  phaseCount,
  slotName,
  usage,
  type Phases,
} from "./cluster";
import { revisionMarks, sizeHistory, sizeReason } from "./history";
import { appendEvaluation, appendEvent, foldEvent, foldSample, replaceAfter } from "./job";
import { at, job, node, sample, stored, T0 } from "./test-data";

describe("a job under events", () => {
  it("loses its tasks and keeps its progress when it goes back to the queue, then shows why it waits", () => {
    const queued = foldEvent(job(), stored(20, { kind: "job_state_changed", revision: 1, state: { phase: "queued" } }));
    expect(queued).toMatchObject({ phase: "queued", workers: { running: 0, min: 1, max: 4 }, progress: { step: 100 } });
    const facts: Waiting = { why: { reason: "not_considered" }, smallest_change: null, position: 3 };
    const text = { reason: "NotConsidered", message: "submitted", smallest_change: null, for_good: false };
    const waiting = foldEvent(
      queued,
      stored(21, { kind: "job_waits", waiting: facts }, "job-1", {
        waiting: { ...text, position: 3, detail: facts },
      }),
    );
    expect(waiting.waiting).toMatchObject({ reason: "NotConsidered", position: 3 });
    const running = foldEvent(
      waiting,
      stored(25, { kind: "job_state_changed", revision: 2, state: { phase: "running" } }),
    );
    expect(running).toMatchObject({ phase: "running", revision: 2, waiting: null, started_at: at(1) });
  });

  it("ends with a reason and a time", () => {
    const failed = foldEvent(
      job(),
      stored(30, { kind: "job_state_changed", revision: 1, state: { phase: "failed", reason: "diverged" } }),
    );
    expect(failed).toMatchObject({ phase: "failed", failure: "diverged", finished_at: at(30) });
  });

  it("is left alone by the events of others", () => {
    const before = job();
    expect(
      foldEvent(before, stored(20, { kind: "job_state_changed", revision: 1, state: { phase: "queued" } }, "job-2")),
    ).toBe(before);
  });

  it("moves on with a newer sample, keeps what a sample does not tell, and ignores one that a reconnect brought again", () => {
    const moved = foldSample(job(), sample(200, 20, { loss: 0.9 }));
    expect(moved.progress).toMatchObject({ step: 200, total_steps: 1000, loss: 0.9, test_accuracy: 0.48, eta_s: 80 });
    expect(foldSample(moved, sample(150, 15))).toBe(moved);
    expect(foldSample(job(), sample(200, 20, { accuracy: 0, epoch: 0 })).progress).toMatchObject({
      accuracy: 0,
      epoch: 0,
    });
    const untold = sample(200, 20, { accuracy: null, epoch: 0, examples_per_s: null });
    const program = job({ spec: { version: "muster/v1", name: "p", command: { argv: ["true"] } } });
    expect(foldSample(program, untold).progress).toMatchObject({ accuracy: null, epoch: null, examples_per_s: null });
  });
});

describe("a node that closes itself", () => {
  it("is not people's to open", () => {
    const why = "its disk has 12 MiB free of 1.0 GiB";
    expect(isClosedByPeople(node("n", [], { excluded: { at: at(1), why, by_itself: true } }))).toBe(false);
    expect(isClosedByPeople(node("n", [], { excluded: { at: at(1), why } }))).toBe(true);
    expect(isClosedByPeople(node("n", [], { drained: true }))).toBe(true);
  });
});

describe("series", () => {
  it("grow at their end", () => {
    expect(replaceAfter([sample(10, 1)], 10, [sample(20, 2), sample(30, 3)]).map((point) => point.step)).toEqual([
      10, 20, 30,
    ]);
  });

  it("drop what was lost when training goes on from an older checkpoint", () => {
    const before = [10, 20, 30, 40].map((step) => sample(step, step));
    const after = replaceAfter(before, 20, [sample(30, 100, { loss: 7 })]);
    expect(after.map((point) => [point.step, point.loss])).toEqual([
      [10, 1],
      [20, 1],
      [30, 7],
    ]);
  });

  it("keep one evaluation a step", () => {
    const one = { step: 10, epoch: 1, split: "test" as const, loss: 1, accuracy: 0.1 };
    expect(appendEvaluation([one], { ...one, accuracy: 0.2 })).toEqual([{ ...one, accuracy: 0.2 }]);
  });

  it("take an event that comes twice once", () => {
    const event = stored(1, { kind: "note", message: "x" });
    expect(appendEvent(appendEvent([], event), event)).toEqual([event]);
  });
});

describe("the history of a size", () => {
  const placed = (seconds: number, revision: number, workers: number) =>
    stored(seconds, { kind: "job_placed", revision, workers, ps_shards: 1, nodes: ["a"], why: `because ${workers}` });
  const state = (seconds: number, revision: number, phase: "queued" | "running") =>
    stored(seconds, { kind: "job_state_changed", revision, state: { phase } });
  const events = [
    stored(0, { kind: "job_submitted", name: "x" }),
    placed(1, 1, 1),
    state(2, 1, "running"),
    state(10, 1, "queued"),
    placed(11, 2, 4),
    state(12, 2, "running"),
    placed(20, 3, 4),
    state(21, 3, "running"),
    stored(22, { kind: "resumed", from_step: 70 }),
  ];

  it("is zero while the job holds nothing and is drawn on to now", () => {
    expect(sizeHistory(events, T0 + 30_000).map((point) => [(point.atMs - T0) / 1000, point.workers])).toEqual([
      [0, 0],
      [1, 1],
      [10, 0],
      [11, 4],
      [20, 4],
      [30, 4],
    ]);
  });

  it("returns to the placed size when a suspended job continues", () => {
    const phase = (seconds: number, phase: "running" | "suspended" | "queued") =>
      stored(seconds, { kind: "job_state_changed", revision: 1, state: { phase } });
    const turns = [
      placed(1, 1, 4),
      phase(2, "running"),
      phase(10, "suspended"),
      phase(20, "running"),
      phase(30, "suspended"),
      phase(35, "queued"),
    ];
    expect(sizeHistory(turns, T0 + 40_000).map((point) => [(point.atMs - T0) / 1000, point.workers])).toEqual([
      [1, 4],
      [10, 0],
      [20, 4],
      [30, 0],
      [35, 0],
      [40, 0],
    ]);
  });

  it("marks each revision but the first at the step it continued from, with the size only if that changed", () => {
    const samples = [sample(10, 3), sample(50, 9), sample(90, 15), sample(130, 25)];
    expect(revisionMarks(events, samples).map((mark) => [mark.step, mark.label])).toEqual([
      [50, "r2 4w 1ps"],
      [70, "r3"],
    ]);
  });

  it("gives the newest reason", () => {
    expect(sizeReason(events)?.why).toBe("because 4");
    expect(sizeReason([])).toBeNull();
  });
});

describe("the cluster", () => {
  const nodes = [node("a", ["x", "x", null]), node("b", ["y", null], { state: "lost" }), node("c", ["y"])];

  it("counts only what is there to be used", () => {
    expect(usage(nodes)).toEqual({ gpusUsed: 3, gpusTotal: 4, nodesUp: 2, nodesTotal: 3 });
  });

  it("calls slots what they are", () => {
    const cores = node("d", [null], {}).gpus.map((gpu) => ({ ...gpu, kind: "cpu_slot" as const }));
    expect([slotName(cores), slotName([...cores, ...node("a", [null]).gpus]), slotName([])]).toEqual([
      "CPU slot",
      "GPU",
      "GPU",
    ]);
  });

  it("frees a GPU only when its task is released", () => {
    const task = { task_id: "x-a-1", role: { kind: "worker", rank: 0 }, node_id: "a" } as const;
    const stopping = foldNodes(nodes, stored(1, { kind: "task_state_changed", ...task, state: { phase: "stopping" } }));
    expect(usage(stopping).gpusUsed).toBe(3);
    const released = foldNodes(
      nodes,
      stored(1, {
        kind: "task_state_changed",
        ...task,
        state: { phase: "released", outcome: { kind: "exited", code: 0 } },
      }),
    );
    expect(released[0]?.gpus.map((gpu) => gpu.job?.id ?? null)).toEqual(["x", null, null]);
  });

  it("follows drains and losses", () => {
    const drained = foldNodes(nodes, stored(1, { kind: "node_drained", name: "a", drained: true }, null));
    const lost = foldNodes(drained, stored(2, { kind: "node_state_changed", name: "a", state: "lost" }, null));
    expect(lost[0]).toMatchObject({ drained: true, state: "lost" });
  });

  it("counts jobs by phase and forgets those that ended", () => {
    let phases: Phases = new Map([["j1", "running"]]);
    phases = foldPhases(phases, stored(1, { kind: "job_submitted", name: "n" }, "j2"));
    expect([phaseCount(phases, "running"), phaseCount(phases, "queued")]).toEqual([1, 1]);
    phases = foldPhases(
      phases,
      stored(2, { kind: "job_state_changed", revision: 1, state: { phase: "succeeded" } }, "j1"),
    );
    expect([...phases]).toEqual([["j2", "queued"]]);
  });

  it("keeps a job's colour while others come and go, and shares colours evenly", () => {
    const first = assignColours(new Map(), ["a", "b", "c"], 3);
    const second = assignColours(first, ["c", "d", "b"], 3);
    expect(second.get("b")).toBe(first.get("b"));
    expect(second.get("c")).toBe(first.get("c"));
    expect(second.get("d")).toBe(first.get("a"));
    expect(assignColours(second, ["b", "c", "d", "e"], 3).get("e")).toBe(0);
  });
});
