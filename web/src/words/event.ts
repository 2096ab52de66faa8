// Severity of the history's events, and short names. The API sends the text of each event.
import type { Actor, JobState, MusterEvent, Outcome, StoredEvent, TaskState } from "../api/types";
import { plural } from "./number";

export type Tone = "good" | "bad" | "warn" | "info" | "quiet";

/** Quiet events are routine, or another event of the same instant says more. */
export function tone(event: MusterEvent): Tone {
  switch (event.kind) {
    case "job_submitted":
    case "intent_changed":
    case "job_edited":
    case "job_placed":
    case "job_deleted":
      return "info";
    case "job_state_changed":
      return ofJob(event.state);
    case "job_stop_requested":
    case "job_waits":
    case "schedule_skipped":
    case "peer_gone":
    case "rank_judged":
    case "job_idle":
    case "node_faulted":
      return "warn";
    case "checkpoint_request_ended":
      return event.result.kind === "reported" ? "good" : "warn";
    case "job_turned":
      return event.suspended ? "warn" : "good";
    case "task_state_changed":
      return ofTask(event.state);
    case "task_failed":
    case "after_failed":
      return "bad";
    case "resumed":
    case "resized":
    case "training_finished":
    case "job_active":
      return "good";
    case "checkpoint_written":
    case "checkpoint_pruned":
    case "evaluated":
    case "note":
    case "port_connection_ended":
    case "unknown":
      return "quiet";
    case "node_state_changed":
      return event.state === "up" ? "good" : "bad";
    case "node_drained":
      return event.drained ? "warn" : "good";
    case "node_excluded":
      return event.excluded ? "bad" : "good";
    case "node_noticed":
      return event.notice.closed === "open" ? "good" : "warn";
    case "template_set":
    case "template_deleted":
    case "schedule_changed":
    case "job_scheduled":
    case "secret_set":
    case "secret_deleted":
    case "remote_session_opened":
    case "remote_session_ended":
      return "info";
    case "node_membership":
      return event.change === "replaced" ? "warn" : "info";
  }
}

function ofJob(state: JobState): Tone {
  switch (state.phase) {
    case "queued":
    case "starting":
    case "suspended":
    case "stopping":
      return "quiet";
    case "running":
    case "succeeded":
      return "good";
    case "paused":
    case "cancelled":
      return "warn";
    case "failed":
      return "bad";
  }
}

function ofTask(state: TaskState): Tone {
  return state.phase === "released" && !isClean(state.outcome) ? "bad" : "quiet";
}

/** Whether the task ended as intended. */
export function isClean(ended: Outcome): boolean {
  return (
    (ended.kind === "exited" && ended.code === 0) ||
    ended.kind === "never_started" ||
    (ended.kind === "stopped" && !ended.driver)
  );
}

/** Returns the reason of an event for its own line. A word gets a capital letter, a name not. */
export function detailLine({ detail }: StoredEvent): string | null {
  if (detail === null || /^[\w.]+-\d/.test(detail)) return detail;
  return detail.charAt(0).toUpperCase() + detail.slice(1);
}

/** The API uses the same form. Older histories do not name the actor. */
export function who(by: Actor | null | undefined): string {
  if (by === null || by === undefined) return "A user";
  return by.as_administrator === true ? `${by.user} as administrator` : by.user;
}

export function size(workers: number, psShards: number): string {
  // A job with all-reduce has no shards.
  return psShards === 0
    ? plural(workers, "worker")
    : `${plural(workers, "worker")} and ${plural(psShards, "PS shard")}`;
}
