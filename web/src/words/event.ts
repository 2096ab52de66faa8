// The history as sentences: one per event, with its severity.
import type {
  Actor,
  AfterStop,
  Evaluation,
  JobState,
  MembershipChange,
  MusterEvent,
  NodeFault,
  Outcome,
  RequeueCause,
  Role,
  TaskState,
  Verdict,
} from "../api/types";
import { bytes, count, loss, percent, plural, splitName } from "./number";
import { waitingView } from "./wait";

export type Tone = "good" | "bad" | "warn" | "info" | "quiet";

export interface Sentence {
  text: string;
  /** The scheduler's own reason, shown below the sentence. */
  detail: string | null;
  tone: Tone;
}

export function eventSentence(event: MusterEvent): Sentence {
  switch (event.kind) {
    case "job_submitted":
      return say(`Submitted as ${event.name}`, "info");
    case "intent_changed":
      return say(`${who(event.by)} ${INTENTS[event.intent]}`, "info");
    case "job_edited": {
      const shards = event.ps_shards ? `, ${event.ps_shards.min} to ${event.ps_shards.max} PS shards` : "";
      return say(
        `Changed${byWhom(event.by)}: ${event.workers.min} to ${event.workers.max} workers${shards}, priority ${event.priority}`,
        "info",
      );
    }
    case "job_state_changed":
      return stateSentence(event.state);
    case "job_placed":
      return say(`Placed: ${size(event.workers, event.ps_shards)} on ${listed(event.nodes)}`, "info", event.why);
    case "job_stop_requested":
      return say(`Stop requested, ${afterStop(event.then)}`, "warn", event.why);
    case "job_turned":
      return event.suspended
        ? say("Suspending, to share its GPUs", "warn", event.why)
        : say("Resuming", "good", event.why);
    case "job_waits": {
      const waiting = waitingView(event.waiting);
      const change = waiting.smallest_change === null ? null : `Would start if you ${waiting.smallest_change}`;
      return say(`Waits: ${waiting.message}`, "warn", change);
    }
    case "task_state_changed":
      return taskSentence(event.role, event.state);
    case "task_failed":
      return say(`${capital(roleName(event.role))} failed`, "bad", event.message);
    case "resumed":
      return say(
        event.from_step === 0 ? "Training starts at step 0" : `Training continues from step ${count(event.from_step)}`,
        "good",
      );
    case "resized":
      return say(
        `Continues from step ${count(event.step)} with ${size(event.workers, event.ps_shards)}`,
        "good",
        `No restart: a pause of ${count(event.pause_ms)} ms`,
      );
    case "peer_gone":
      return say(`A task left at step ${count(event.step)}; the others continue`, "warn");
    case "rank_judged":
      return say(
        `${capital(roleName(event.verdict.role))} on ${event.verdict.node} ${finding(event.verdict.finding)}`,
        "warn",
        REMEDIES[event.verdict.remedy],
      );
    case "checkpoint_written":
      return say(`Checkpoint at step ${count(event.checkpoint.step)}, ${bytes(event.checkpoint.bytes)}`, "quiet");
    case "checkpoint_pruned":
      return say(`Checkpoint of step ${count(event.step)} pruned`, "quiet");
    case "evaluated":
      return say(`Evaluated at step ${count(event.step)}: ${measures(event)}`, "quiet");
    case "training_finished":
      return say(`Training finished at step ${count(event.step)}`, "good", event.reason);
    case "note":
      return say(event.message, "quiet");
    case "node_state_changed":
      return event.state === "up" ? say(`Node ${event.name} is up`, "good") : say(`Node ${event.name} is lost`, "bad");
    case "node_drained":
      return event.drained
        ? say(`Node ${event.name} drained`, "warn")
        : say(`Node ${event.name} takes work again`, "good");
    case "node_faulted":
      return say(`On node ${event.name}: ${fault(event.fault)}`, "warn");
    case "node_excluded":
      return event.excluded
        ? say(`Node ${event.name} takes no new work`, "bad", event.why)
        : say(`Node ${event.name} takes work again`, "good", event.why);
    case "node_noticed":
      if (event.notice.closed === "open") return say(`Node ${event.name} is open as far as its cluster says`, "good");
      return say(
        `Node ${event.name} ${event.notice.closed === "to_all" ? "drained" : "cordoned"} by its cluster`,
        "warn",
        event.notice.why,
      );
    case "node_membership":
      return say(
        membership(event.name, event.change) + byWhom(event.by),
        event.change === "replaced" ? "warn" : "info",
      );
    case "job_deleted":
      return say(`Job deleted${byWhom(event.by)}`, "info");
    case "unknown":
      return say(`An event of another release: ${event.of}`, "quiet", JSON.stringify(event.body));
  }
}

/** Returns `val accuracy 98.18 %, val loss 0.0612`, with the logged measures. */
function measures({ split, accuracy, loss: value }: Pick<Evaluation, "split" | "accuracy" | "loss">): string {
  const of = splitName(split);
  const both = [
    accuracy === null ? null : `${of} accuracy ${percent(accuracy, 2)}`,
    value === null ? null : `${of} loss ${loss(value)}`,
  ];
  return both.filter((part) => part !== null).join(", ");
}

/**
 * Returns the finding on a task that delays the others, to follow its name: its pace relative to
 * the median, or the time since its last report.
 */
export function finding(of: Verdict["finding"]): string {
  if (of.kind === "hang")
    return `hangs: nothing since step ${count(of.step)}, for ${count(Math.round(of.silent_ms / 1000))} s`;
  return `is a straggler: ${(of.own_us / 1000).toFixed(1)} ms of its own for a step, the median is ${(of.median_us / 1000).toFixed(1)} ms`;
}

export const REMEDIES: Record<Verdict["remedy"], string> = {
  replaced: "Replaced by another on another node; the others continue",
  left_out: "The others continue without it",
  restarted: "The job starts again",
};

function membership(node: string, change: MembershipChange): string {
  switch (change) {
    case "join_token_made":
      return `One-time join token for node ${node} made`;
    case "credential_reset":
      return `Credential of node ${node} reset`;
    case "replaced":
      return `Another executor took the place of node ${node}`;
    case "removed":
      return `Node ${node} removed`;
  }
}

function fault(of: NodeFault): string {
  switch (of.kind) {
    case "killed":
      return `a task was killed by signal ${of.signal}`;
    case "straggler":
      return "a rank was a straggler";
    case "hang":
      return of.at_start === true ? "a task was not started in time" : "a rank hung";
    case "xid":
      return `GPU ${of.gpu} had the error XID ${of.xid}`;
    case "uncorrected_memory":
      return `GPU ${of.gpu} had ${count(of.errors)} uncorrected errors of its memory`;
    case "driver_lost":
      return `the driver did not give a program back to GPU ${of.gpu}`;
  }
}

const INTENTS = {
  run: "asked for it to run",
  suspend: "asked to suspend it",
  pause: "asked for a pause",
  cancel: "asked to cancel it",
} as const;

type By = Actor | null | undefined;

/** The CLI uses the same form. Older histories do not name the actor. */
export function who(by: By): string {
  if (by === null || by === undefined) return "A user";
  return by.as_administrator === true ? `${by.user} as administrator` : by.user;
}

function byWhom(by: By): string {
  return by === null || by === undefined ? "" : ` by ${who(by)}`;
}

const CAUSES: Record<RequeueCause, string> = {
  resize: "to start again in another size",
  preempted: "because its GPUs go to a job that comes first",
  over_quota: "because its tenant holds more than its quota",
  task_failed: "to start again after a failure",
  node_lost: "to start again after losing a node",
};

export function afterStop(then: AfterStop): string {
  switch (then.kind) {
    case "requeue":
      return CAUSES[then.cause];
    case "move":
      return "to restart in a place that is kept for it";
    case "pause":
      return "for a pause";
    case "succeed":
      return "as it has finished";
    case "fail":
      return "as it has failed";
    case "cancel":
      return "as it was cancelled";
  }
}

/**
 * Low severity if another event of the same instant says more: a placement, or an ordered stop with
 * its reason.
 */
function stateSentence(state: JobState): Sentence {
  switch (state.phase) {
    case "queued":
      return say("Queued", "quiet");
    case "starting":
      return say("Starting its tasks", "quiet");
    case "running":
      return say("All tasks are running", "good");
    case "suspended":
      return say("Suspended; its processes stay, its GPUs go to others", "quiet");
    case "stopping":
      return say(`Stopping ${afterStop(state.then)}`, "quiet");
    case "paused":
      return say("Paused; holds no GPUs", "warn");
    case "succeeded":
      return say("Succeeded", "good");
    case "failed":
      return say("Failed", "bad", state.reason);
    case "cancelled":
      return say("Cancelled", "warn");
  }
}

function taskSentence(role: Role, state: TaskState): Sentence {
  const name = capital(roleName(role));
  switch (state.phase) {
    case "assigned":
      return say(`${name} assigned`, "quiet");
    case "running":
      return say(`${name} is up`, "quiet");
    case "suspending":
      return say(`${name} asked to suspend`, "quiet");
    case "suspended":
      return say(`${name} is suspended`, "quiet");
    case "stopping":
    case "ending":
      return say(`${name} asked to stop`, "quiet");
    case "released":
      return say(`${name} ${outcome(state.outcome)}`, isClean(state.outcome) ? "quiet" : "bad");
  }
}

export function outcome(ended: Outcome): string {
  switch (ended.kind) {
    case "exited":
      return ended.code === 0
        ? "ended in order"
        : ended.code === 75
          ? "ended: a peer was lost (75)"
          : `exited with code ${ended.code}${saying(ended.said)}`;
    case "signalled":
      return `killed by signal ${ended.signal}${saying(ended.said)}`;
    case "launch_failed":
      return `could not be started: ${ended.message}`;
    case "lease_expired":
      return "stopped by its node, which had lost its session";
    case "node_lost":
      return "lost with its node";
    case "never_started":
      return "withdrawn before it started";
    case "stopped":
      if (ended.driver) return `ended, as the driver did not give it back to its GPUs: ${ended.driver}`;
      return ended.killed ? "killed after its grace period" : "stopped as requested";
    case "out_of_memory":
      return "killed for more memory than it was given";
    case "evicted":
      return `evicted by Kubernetes: ${ended.reason}: ${ended.message}`;
  }
}

/** Returns the last line that a task wrote before it failed. */
function saying(said: string | null | undefined): string {
  return typeof said === "string" ? `, saying "${said}"` : "";
}

export function isClean(ended: Outcome): boolean {
  return (
    (ended.kind === "exited" && ended.code === 0) ||
    ended.kind === "never_started" ||
    (ended.kind === "stopped" && !ended.driver)
  );
}

export function roleName(role: Role): string {
  return role.kind === "worker" ? `worker ${role.rank}` : `PS shard ${role.index}`;
}

export function size(workers: number, psShards: number): string {
  // A job with all-reduce has no shards.
  return psShards === 0
    ? plural(workers, "worker")
    : `${plural(workers, "worker")} and ${plural(psShards, "PS shard")}`;
}

function listed(names: string[]): string {
  const distinct = [...new Set(names)];
  return distinct.length <= 3
    ? distinct.join(", ")
    : `${distinct.slice(0, 2).join(", ")} and ${distinct.length - 2} more nodes`;
}

function say(text: string, tone: Tone, detail: string | null = null): Sentence {
  return { text, tone, detail };
}

export function capital(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
