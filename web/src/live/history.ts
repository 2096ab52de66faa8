// What the history says of a job's size: when it had how many workers and shards, and where a new revision began.
import type { SampleView, StoredEvent } from "../api/types";

export interface SizePoint {
  atMs: number;
  workers: number;
  psShards: number;
}

/** Steps of the job's size over time; zero while it holds nothing or is suspended. The last one is drawn on to `endMs`. */
export function sizeHistory(events: readonly StoredEvent[], endMs: number): SizePoint[] {
  const points: SizePoint[] = [];
  let placed = { workers: 0, psShards: 0 };
  let suspended = false;
  for (const { at, event } of events) {
    const atMs = Date.parse(at);
    if (event.kind === "job_submitted") points.push({ atMs, workers: 0, psShards: 0 });
    if (event.kind === "job_placed") {
      placed = { workers: event.workers, psShards: event.ps_shards };
      points.push({ atMs, ...placed });
    }
    if (event.kind !== "job_state_changed") continue;
    const { phase } = event.state;
    if (!["starting", "running", "stopping"].includes(phase)) points.push({ atMs, workers: 0, psShards: 0 });
    // A suspended job keeps its placement, so no new placement precedes its return.
    if (suspended && phase === "running") points.push({ atMs, ...placed });
    suspended = phase === "suspended";
  }
  const last = points[points.length - 1];
  if (last !== undefined && endMs > last.atMs) points.push({ ...last, atMs: endMs });
  return points;
}

export interface Mark {
  step: number;
  atMs: number;
  /** Short, as it is written into the chart. */
  label: string;
}

/**
 * Where a revision took over: the step it continued from and the size it was given. The first start is no change, so no mark. Until
 * the revision tells its step, the last one sampled before it stands in.
 */
export function revisionMarks(events: readonly StoredEvent[], samples: readonly SampleView[]): Mark[] {
  const marks: Mark[] = [];
  let placed: { revision: number; workers: number; psShards: number } | null = null;
  let before: { workers: number; psShards: number } | null = null;
  for (const { at, event } of events) {
    if (event.kind === "job_placed") {
      if (placed !== null) before = placed;
      placed = { revision: event.revision, workers: event.workers, psShards: event.ps_shards };
    }
    const newest = marks[marks.length - 1];
    if (event.kind === "resumed" && newest !== undefined && newest.label.split(" ")[0] === `r${placed?.revision ?? 0}`) newest.step = event.from_step;
    const starts = event.kind === "job_state_changed" && event.state.phase === "running";
    if (!starts || placed === null || placed.revision <= 1) continue;
    const atMs = Date.parse(at);
    const resized = before === null || before.workers !== placed.workers || before.psShards !== placed.psShards;
    const label = resized ? `r${placed.revision} ${placed.workers}w ${placed.psShards}ps` : `r${placed.revision}`;
    marks.push({ step: stepAt(samples, atMs), atMs, label });
  }
  return marks;
}

/** The last step sampled before the instant. */
function stepAt(samples: readonly SampleView[], atMs: number): number {
  let step = 0;
  for (const sample of samples) {
    if (Date.parse(sample.at) > atMs) break;
    step = sample.step;
  }
  return step;
}

/** The newest decision that gave the job its size, in the scheduler's words. */
export function sizeReason(events: readonly StoredEvent[]): { workers: number; psShards: number; why: string } | null {
  for (let index = events.length - 1; index >= 0; index -= 1) {
    const event = events[index]?.event;
    if (event?.kind === "job_placed") return { workers: event.workers, psShards: event.ps_shards, why: event.why };
  }
  return null;
}

const DECISIONS = new Set(["job_placed", "job_stop_requested", "job_waits", "task_failed", "rank_judged"]);

/** The last decisions about the job, newest first. */
export function decisions(events: readonly StoredEvent[], limit: number): StoredEvent[] {
  return events.filter(({ event }) => DECISIONS.has(event.kind)).slice(-limit).reverse();
}
