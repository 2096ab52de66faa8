// The history of a job's size: workers and shards over time, and the start of each revision.
import type { SampleView, StoredEvent } from "../api/types";

export interface SizePoint {
  atMs: number;
  workers: number;
  psShards: number;
}

/**
 * Returns the steps of the job's size over time; zero while it holds nothing or is suspended. The
 * last one extends to `endMs`.
 */
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
    // A suspended job keeps its placement, so no new placement precedes its continuation.
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
  /** Short text, because it is written into the chart. */
  label: string;
}

/**
 * Returns a mark per revision: the step from which it continued and its size. The first start is
 * not a mark. Until the revision reports its step, the last sampled step before it is used.
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
    if (event.kind === "resumed" && newest !== undefined && newest.label.split(" ")[0] === `r${placed?.revision ?? 0}`)
      newest.step = event.from_step;
    const starts = event.kind === "job_state_changed" && event.state.phase === "running";
    if (!starts || placed === null || placed.revision <= 1) continue;
    const atMs = Date.parse(at);
    const resized = before === null || before.workers !== placed.workers || before.psShards !== placed.psShards;
    const label = resized ? `r${placed.revision} ${placed.workers}w ${placed.psShards}ps` : `r${placed.revision}`;
    marks.push({ step: stepAt(samples, atMs), atMs, label });
  }
  return marks;
}

/** Returns the last step that was sampled before the instant. */
function stepAt(samples: readonly SampleView[], atMs: number): number {
  let step = 0;
  for (const sample of samples) {
    if (Date.parse(sample.at) > atMs) break;
    step = sample.step;
  }
  return step;
}

/** Returns the newest decision about the job's size, in the scheduler's words. */
export function sizeReason(events: readonly StoredEvent[]): { workers: number; psShards: number; why: string } | null {
  for (let index = events.length - 1; index >= 0; index -= 1) {
    const event = events[index]?.event;
    if (event?.kind === "job_placed") return { workers: event.workers, psShards: event.ps_shards, why: event.why };
  }
  return null;
}

const DECISIONS = new Set(["job_placed", "job_stop_requested", "job_waits", "task_failed", "rank_judged", "job_idle"]);

/** Returns the last decisions about the job, newest first. */
export function decisions(events: readonly StoredEvent[], limit: number): StoredEvent[] {
  return events
    .filter(({ event }) => DECISIONS.has(event.kind))
    .slice(-limit)
    .reverse();
}
