// Why a job waits, and the smallest change that would start it. The API sends these sentences with
// a job. A `job_waits` event on a stream contains only facts, so the sentences are repeated here.
import type { Change, Refused, Short, Wait, Waiting, WaitingView } from "../api/types";
import { plural } from "./number";

export function waitingView(waiting: Waiting): WaitingView {
  return {
    reason: reasonName(waiting.why),
    message: waitMessage(waiting.why),
    smallest_change: remedy(waiting),
    position: waiting.position,
    detail: waiting,
  };
}

/** Returns what helps; `null` if only time does. */
function remedy({ smallest_change: change, why }: Waiting): string | null {
  // Freeing GPUs does not enlarge the cluster.
  if (change?.change === "add_gpus" && isForGood(why)) return `add ${gpus(change.gpus)}`;
  if (change) return changeMessage(change);
  if (why.reason === "no_matching_nodes" && why.pods)
    return "add a node whose tasks are pods, or take pod out of the job's document";
  if (why.reason !== "topology_placement_failed" || !why.short) return null;
  return why.short.of === "memory"
    ? `lower resources.worker.memory_bytes to ${why.short.largest_node_bytes} or less`
    : `lower resources.worker.cpu_milli to ${why.short.largest_node_milli} or less`;
}

/** Converts `waiting_for_gpus` to `WaitingForGpus`, the form of Kubernetes' condition reasons. */
function reasonName(why: Wait): string {
  if (why.reason === "topology_placement_failed" && why.short) return "NoMatchingNodes";
  return why.reason.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function waitMessage(why: Wait): string {
  switch (why.reason) {
    case "not_considered":
      return "submitted; the next round considers it";
    case "behind_earlier_jobs":
      return `behind earlier jobs of its tenant: a round considers the first ${why.considered} of them`;
    case "suspended":
      return "paused by a user";
    case "waiting_for_quota":
      return `needs ${gpus(why.needed_gpus)}; the tenant's other jobs hold ${why.used_gpus} of its quota of ${why.quota_gpus}`;
    case "exceeds_max_quota":
      return `needs ${gpus(why.needed_gpus)}; the tenant's whole quota is ${why.quota_gpus}`;
    case "no_matching_nodes":
      if (why.largest_node_gpus === 0)
        return why.pods
          ? `each worker needs ${gpus(why.needed_gpus_per_worker)} on one node whose tasks are pods, because of the job's pod, and no such node takes tasks`
          : `each worker needs ${gpus(why.needed_gpus_per_worker)} on one node, and no node takes tasks: they are drained, excluded or away`;
      return `each worker needs ${gpus(why.needed_gpus_per_worker)} on one node${why.pods ? " whose tasks are pods" : ""}; the largest node has ${why.largest_node_gpus}${why.parts ? " for one task: others have parts of GPUs (MIG), of which a process sees one" : ""}`;
    case "exceeds_cluster":
      return `needs ${gpus(why.needed_gpus)}; the whole cluster has ${why.cluster_gpus}`;
    case "waiting_for_gpus":
      return `needs ${gpus(why.needed_gpus)}, ${why.free_gpus} ${why.free_gpus === 1 ? "is" : "are"} free${why.kept_gpus ? `, ${why.kept_gpus} of them kept for jobs ahead of it` : ""}; ${plural(why.held_by.length, "job is", "jobs are")} in the way`;
    case "topology_placement_failed":
      return why.short
        ? shortMessage(why.short)
        : `needs ${gpus(why.needed_gpus)} and ${why.free_gpus} are free, but not where its tasks fit`;
    case "waiting_for_preempted_workloads":
      return `room is being made: ${plural(why.jobs.length, "job is", "jobs are")} stopping`;
    case "backing_off":
      return why.refused ? refusedMessage(why.refused, why.until_unix_ms) : "failed, and is tried again after a pause";
  }
}

function refusedMessage({ node, message, times }: Refused, untilMs: number): string {
  const often = times > 1 ? `, as nodes did ${times} times in a row` : "";
  return `a node refused it (${node}: ${message})${often}; it is tried again at ${new Date(untilMs).toISOString().slice(11, 19)} UTC`;
}

function shortMessage(short: Short): string {
  switch (short.of) {
    case "memory":
      return `each worker asks for ${gib(short.needed_bytes)} GiB of memory (resources.worker.memory_bytes); the largest node has ${gib(short.largest_node_bytes)}`;
    case "cpu":
      return `each worker asks for ${(short.needed_milli / 1e3).toFixed(1)} cores (resources.worker.cpu_milli); the largest node has ${(short.largest_node_milli / 1e3).toFixed(1)}`;
  }
}

function gib(bytes: number): string {
  return (bytes / 2 ** 30).toFixed(1);
}

/** Whether the job cannot start without a change of the job, the quota or the cluster. */
export function isForGood(why: Wait): boolean {
  switch (why.reason) {
    // Nodes that take no tasks may be unavailable only for a moment.
    case "no_matching_nodes":
      return why.largest_node_gpus > 0;
    case "exceeds_max_quota":
    case "exceeds_cluster":
      return true;
    case "topology_placement_failed":
      return Boolean(why.short);
    case "not_considered":
    case "behind_earlier_jobs":
    case "suspended":
    case "waiting_for_quota":
    case "waiting_for_gpus":
    case "waiting_for_preempted_workloads":
    case "backing_off":
      return false;
  }
}

export function changeMessage(change: Change): string {
  switch (change.change) {
    case "lower_min_workers":
      return `lower scale.workers.min to ${change.to}`;
    case "lower_gpus_per_worker":
      return `lower resources.worker.gpus to ${change.to}`;
    case "raise_quota":
      return `raise the tenant's quota by ${gpus(change.by_gpus)}`;
    case "add_gpus":
      return `free or add ${gpus(change.gpus)}`;
    case "uncordon_node":
      return `uncordon node ${change.name}`;
    case "resume":
      return "resume the job";
    case "raise_priority":
      return `raise its priority to ${change.to}`;
    case "end_job":
      return `pause or end the tenant's job ${change.name}`;
    case "wait":
      return `wait until about ${new Date(change.until_unix_ms).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })}: ${change.ended.length === 0 ? "its turn comes then" : `${plural(change.ended.length, "job ends", "jobs end")} by then`}`;
  }
}

/** Returns the blocking jobs, for links. */
export function blockers(why: Wait): string[] {
  if (why.reason === "waiting_for_gpus") return why.held_by;
  if (why.reason === "waiting_for_preempted_workloads") return why.jobs;
  return [];
}

function gpus(value: number): string {
  return plural(value, "GPU");
}
