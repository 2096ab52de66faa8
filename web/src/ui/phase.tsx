// A phase, shown by a word and a colour.
import type { Intent, JobPhase, JobView } from "../api/types";
import { usesGpus } from "../live/job";

export const PHASES: readonly JobPhase[] = [
  "queued",
  "starting",
  "running",
  "suspended",
  "stopping",
  "paused",
  "succeeded",
  "failed",
  "cancelled",
];

/** Shows the phase, and an intent of a user that no round has applied yet. */
export function PhaseChip({ phase, intent }: { phase: JobPhase; intent?: Intent }) {
  const asked = pending(phase, intent);
  return (
    <span className="phase" data-phase={phase}>
      <span className="phase-dot" aria-hidden="true" />
      {phase}
      {asked === null ? null : <span className="phase-asked"> · {asked}</span>}
    </span>
  );
}

function pending(phase: JobPhase, intent: Intent | undefined): string | null {
  const live = phase === "queued" || phase === "starting" || phase === "running" || phase === "suspended";
  if (intent === "suspend" && phase === "running") return "suspending";
  if (intent === "pause" && live) return "pausing";
  if (intent === "cancel" && (live || phase === "paused")) return "cancelling";
  if (intent === "run" && phase === "paused") return "resuming";
  return null;
}

export function canPause(job: JobView): boolean {
  return job.intent === "run" && ["queued", "starting", "running", "suspended", "stopping"].includes(job.phase);
}

/** The size of a trial is determined by its study. */
export function canEdit(job: JobView): boolean {
  return job.intent !== "cancel" && job.trial === null && !["succeeded", "failed", "cancelled"].includes(job.phase);
}

export function canResume(job: JobView): boolean {
  return job.intent === "pause" && !["succeeded", "failed", "cancelled"].includes(job.phase);
}

/** A job without GPUs would release none. */
export function canSuspend(job: JobView): boolean {
  return job.intent === "run" && job.phase === "running" && usesGpus(job.spec);
}

export function canContinue(job: JobView): boolean {
  return job.intent === "suspend" && !["succeeded", "failed", "cancelled"].includes(job.phase);
}

export function canCancel(job: JobView): boolean {
  return job.intent !== "cancel" && !["succeeded", "failed", "cancelled"].includes(job.phase);
}

export function canDelete(job: JobView): boolean {
  return ["succeeded", "failed", "cancelled"].includes(job.phase);
}
