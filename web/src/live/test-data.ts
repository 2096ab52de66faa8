// Complete jobs, samples, events and nodes for tests, so that a test states only what it is about.
import type { JobView, MusterEvent, NodeView, SampleView, StoredEvent, TaskView } from "../api/types";

export const T0 = Date.parse("2026-01-01T00:00:00Z");

export function at(seconds: number): string {
  return new Date(T0 + seconds * 1000).toISOString();
}

export function job(change: Partial<JobView> = {}): JobView {
  return {
    id: "job-1",
    tenant: "vision",
    name: "fashion-cnn",
    labels: {},
    priority: 0,
    priority_class: null,
    phase: "running",
    state: { phase: "running" },
    intent: "run",
    revision: 1,
    failures: 0,
    waiting: null,
    workers: { running: 2, min: 1, max: 4 },
    ps_shards: { running: 1, min: 1, max: 2 },
    progress: {
      step: 100,
      total_steps: 1000,
      epoch: 0.2,
      loss: 1.5,
      accuracy: 0.5,
      test_accuracy: 0.48,
      test_loss: 1.6,
      evaluated_on: "test",
      examples_per_s: 1280,
      steps_per_s: 10,
      eta_s: 90,
      sampled_at: at(10),
    },
    model_path: null,
    failure: null,
    last_failure: null,
    resume_step: null,
    forecast: null,
    trial: null,
    submitted_by: "ada",
    submitted_at: at(0),
    started_at: at(1),
    finished_at: null,
    spec: {
      version: "muster/v1",
      name: "fashion-cnn",
      engine: {
        model: { kind: "mlp", hidden: [32] },
        dataset: { name: "fashion-mnist" },
        optimizer: { kind: "sgd", learning_rate: 0.1, momentum: 0, weight_decay: 0 },
        batch: 64,
        seed: 0,
      },
      stop: { epochs: 1, steps: null, target: null, convergence: null, wall_minutes: null },
    },
    ...change,
  };
}

/** Returns a running worker of the job "job-1". */
export function task(rank: number, change: Partial<TaskView> = {}): TaskView {
  return {
    id: `task-${rank}`,
    job_id: "job-1",
    name: `worker-${rank}`,
    role: { kind: "worker", rank },
    revision: 1,
    node_id: "node-a",
    node: "node-a",
    gpus: [rank],
    state: { phase: "running" },
    outcome: null,
    address: null,
    created_at: at(0),
    released_at: null,
    ...change,
  };
}

export function sample(step: number, seconds: number, change: Partial<SampleView> = {}): SampleView {
  return {
    at: at(seconds),
    step,
    epoch: step / 500,
    loss: 1,
    accuracy: 0.6,
    examples_per_s: 1280,
    steps_per_s: 10,
    compute_ms: 5,
    exchange_ms: 3,
    data_ms: 1,
    workers: 2,
    ps_shards: 1,
    ...change,
  };
}

let sequence = 0;

export function stored(
  seconds: number,
  event: MusterEvent,
  jobId: string | null = "job-1",
  text: Partial<StoredEvent> = {},
): StoredEvent {
  sequence += 1;
  return {
    cursor: `9-${sequence}`,
    at: at(seconds),
    tenant_id: null,
    job_id: jobId,
    node_id: null,
    message: event.kind,
    detail: null,
    event,
    ...text,
  };
}

/** Returns a node whose GPUs are held by these jobs; `null` is free. */
export function node(name: string, holders: (string | null)[], change: Partial<NodeView> = {}): NodeView {
  return {
    id: name,
    name,
    state: "up",
    drained: false,
    excluded: null,
    notice: null,
    generation: 1,
    capacity: { gpus: [], cpu_milli: 8000, memory_bytes: 2 ** 34 },
    last_seen_at: at(0),
    gpus: holders.map((holder, index) => ({
      index,
      kind: "cuda",
      model: "NVIDIA H200",
      memory_bytes: 2 ** 37,
      job: holder === null ? null : { id: holder, name: holder, tenant: "vision" },
      task_id: holder === null ? null : `${holder}-${name}-${index}`,
    })),
    ...change,
  };
}
