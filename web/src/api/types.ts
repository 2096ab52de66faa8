// The wire's nouns by the names the page uses. TEMPORARY.
export type JobPhase = "queued" | "starting" | "running" | "stopping" | "paused" | "succeeded" | "failed" | "cancelled";
export type Intent = "run" | "pause" | "cancel";
export type RequeueCause = "resize" | "preempted" | "task_failed" | "node_lost";
export type AfterStop =
  | { kind: "requeue"; cause: RequeueCause }
  | { kind: "pause" }
  | { kind: "succeed" }
  | { kind: "fail"; reason: string }
  | { kind: "cancel" };
export type JobState =
  | { phase: "queued" | "starting" | "running" | "paused" | "succeeded" | "cancelled" }
  | { phase: "stopping"; then: AfterStop }
  | { phase: "failed"; reason: string };
export type Wait =
  | { reason: "not_considered" }
  | { reason: "suspended" }
  | { reason: "waiting_for_quota"; needed_gpus: number; used_gpus: number; quota_gpus: number }
  | { reason: "exceeds_max_quota"; needed_gpus: number; quota_gpus: number }
  | { reason: "no_matching_nodes"; needed_gpus_per_worker: number; largest_node_gpus: number }
  | { reason: "exceeds_cluster"; needed_gpus: number; cluster_gpus: number }
  | { reason: "waiting_for_gpus"; needed_gpus: number; free_gpus: number; held_by: string[] }
  | { reason: "topology_placement_failed"; needed_gpus: number; free_gpus: number }
  | { reason: "waiting_for_preempted_workloads"; jobs: string[] }
  | { reason: "backing_off"; until_unix_ms: number };
export type Change =
  | { change: "lower_min_workers"; to: number }
  | { change: "lower_gpus_per_worker"; to: number }
  | { change: "raise_quota"; by_gpus: number }
  | { change: "add_gpus"; gpus: number }
  | { change: "uncordon_node"; name: string }
  | { change: "resume" };
export interface Waiting {
  why: Wait;
  smallest_change: Change | null;
  position: number;
}
export interface WaitingView {
  reason: string;
  message: string;
  smallest_change: string | null;
  position: number;
  detail: Waiting;
}
export interface SizeView {
  running: number;
  min: number;
  max: number;
}
export interface ProgressView {
  step: number;
  total_steps: number | null;
  epoch: number;
  loss: number;
  accuracy: number;
  test_accuracy: number | null;
  examples_per_s: number;
  steps_per_s: number;
  eta_s: number | null;
  sampled_at: string | null;
}
export interface JobView {
  id: string;
  tenant: string;
  name: string;
  labels: Record<string, string>;
  priority: number;
  phase: JobPhase;
  state: JobState;
  intent: Intent;
  revision: number;
  failures: number;
  waiting: WaitingView | null;
  workers: SizeView;
  ps_shards: SizeView;
  progress: ProgressView | null;
  model_path: string | null;
  failure: string | null;
  resume_step: number | null;
  submitted_by: string;
  submitted_at: string;
  started_at: string | null;
  finished_at: string | null;
  spec: Record<string, unknown>;
}
export interface Sample {
  step: number;
  epoch: number;
  loss: number;
  accuracy: number;
  examples_per_s: number;
  steps_per_s: number;
  compute_ms: number;
  exchange_ms: number;
  data_ms: number;
  workers: number;
  ps_shards: number;
}
export interface Evaluation {
  step: number;
  epoch: number;
  loss: number;
  accuracy: number;
}
export type SampleView = Sample & { at: string };
export type EvaluationView = Evaluation & { at: string };
export interface Progress {
  samples: SampleView[];
  evaluations: EvaluationView[];
}
export type Role = { kind: "worker"; rank: number } | { kind: "ps_shard"; index: number };
export type Outcome =
  | { kind: "exited"; code: number }
  | { kind: "signalled"; signal: number }
  | { kind: "launch_failed"; message: string }
  | { kind: "lease_expired" }
  | { kind: "node_lost" }
  | { kind: "never_started" };
export type TaskState = { phase: "assigned" | "running" | "stopping" } | { phase: "released"; outcome: Outcome };
export interface TaskView {
  id: string;
  revision: number;
  role: Role;
  node: string;
  gpus: number[];
  state: TaskState;
  created_at: string;
  released_at: string | null;
}
export interface Written {
  step: number;
  epoch: number;
  revision: number;
  path: string;
  bytes: number;
  manifest_sha256: string;
}
export interface CheckpointView extends Written {
  id: string;
  retained: boolean;
  files: string[];
}
export type NodeState = "up" | "lost";
export type MusterEvent =
  | { kind: "job_submitted"; name: string }
  | { kind: "intent_changed"; intent: Intent }
  | { kind: "job_state_changed"; state: JobState; revision: number }
  | { kind: "job_placed"; revision: number; workers: number; ps_shards: number; nodes: string[]; why: string }
  | { kind: "job_stop_requested"; then: AfterStop; why: string }
  | { kind: "job_waits"; waiting: Waiting }
  | { kind: "task_state_changed"; task_id: string; role: Role; node_id: string; state: TaskState }
  | { kind: "task_failed"; task_id: string; role: Role; message: string }
  | { kind: "resumed"; from_step: number }
  | { kind: "checkpoint_written"; checkpoint: Written }
  | { kind: "checkpoint_pruned"; step: number }
  | { kind: "evaluated"; step: number; epoch: number; loss: number; accuracy: number }
  | { kind: "training_finished"; step: number; reason: string; model_path: string }
  | { kind: "note"; message: string }
  | { kind: "node_state_changed"; name: string; state: NodeState }
  | { kind: "node_drained"; name: string; drained: boolean }
  | { kind: "job_deleted"; job_id: string };
export interface StoredEvent {
  cursor: string;
  at: string;
  tenant_id: string | null;
  job_id: string | null;
  node_id: string | null;
  event: MusterEvent;
}
export interface GpuView {
  index: number;
  kind: "cuda" | "cpu_slot";
  model: string;
  memory_bytes: number;
  job: { id: string; name: string | null; tenant: string | null } | null;
  task_id: string | null;
}
export interface NodeView {
  id: string;
  name: string;
  state: NodeState;
  drained: boolean;
  generation: number;
  capacity: { gpus: unknown[]; cpu_milli: number; memory_bytes: number };
  last_seen_at: string;
  gpus: GpuView[];
}
export interface Me {
  tenant: string;
  user: string;
  access: "member" | "admin";
}
