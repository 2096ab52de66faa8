// Complete studies and trials for tests, so that a test states only what it is about.
import type { StudySearch, StudyView, TrialView } from "../../api/types";
import { at } from "../../live/test-data";

export function search(change: Partial<StudySearch> = {}): StudySearch {
  return {
    objectives: [{ metric: "test_accuracy", goal: "maximize" }],
    parameters: [
      { name: "rate", field: "engine.optimizer.learning_rate", type: "float", low: 0.001, high: 0.1, log: true },
      { name: "width", field: "engine.model.hidden[0]", type: "int", low: 32, high: 512 },
    ],
    searcher: { kind: "random" },
    stopper: { kind: "asha", min: 1, eta: 3 },
    budget: { max: 9, unit: "epochs" },
    trials: 27,
    concurrency: 4,
    ...change,
  };
}

/** Returns a trial with these parameters and, unless it is null, this outcome after one epoch. */
export function trial(
  number: number,
  parameters: Record<string, unknown>,
  value: number | readonly number[] | null,
  change: Partial<TrialView> = {},
): TrialView {
  const values = value === null ? null : typeof value === "number" ? [value] : [...value];
  const point = values === null ? [] : [{ step: 1, values }];
  return {
    number,
    // The API's document describes the parameters only as an object.
    parameters: parameters as Record<string, never>,
    state: value === null ? "running" : "waiting",
    rung: 0,
    budget: 1,
    seed: 0,
    best: false,
    job_id: `job-${number}`,
    job_phase: "running",
    from: null,
    failure: null,
    outcome: point[0] ?? null,
    rungs: point,
    curve: point,
    created_at: at(number),
    ended_at: null,
    ...change,
  };
}

export function study(change: Partial<StudyView> = {}): StudyView {
  return {
    id: "study-1",
    tenant: "vision",
    name: "fashion-asha",
    labels: {},
    phase: "running",
    created_by: "ada",
    created_at: at(0),
    finished_at: null,
    events: 3,
    trials: {
      limit: 27,
      created: 2,
      running: 1,
      waiting: 1,
      stopping: 0,
      completed: 0,
      stopped: 0,
      failed: 0,
      best: 0,
    },
    best: [],
    document: { version: "muster/v1", kind: "study", name: "fashion-asha", search: search(), job: {} },
    ...change,
  };
}
