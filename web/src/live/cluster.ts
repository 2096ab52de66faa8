// Applies events to the page's state of nodes and of the whole cluster. Pure.
import type { GpuView, JobPhase, NodeView, StoredEvent } from "../api/types";

export function foldNodes(nodes: readonly NodeView[], { event, at }: StoredEvent): readonly NodeView[] {
  switch (event.kind) {
    case "node_state_changed":
      return nodes.map((node) => (node.name === event.name ? { ...node, state: event.state, last_seen_at: at } : node));
    case "node_drained":
      return nodes.map((node) => (node.name === event.name ? { ...node, drained: event.drained } : node));
    case "node_excluded": {
      const excluded = event.excluded ? { at, why: event.why } : null;
      return nodes.map((node) => (node.name === event.name ? { ...node, excluded } : node));
    }
    case "node_membership":
      return event.change === "removed" ? nodes.filter((node) => node.name !== event.name) : nodes;
    case "node_noticed":
      return nodes.map((node) => (node.name === event.name ? { ...node, notice: event.notice } : node));
    case "task_state_changed":
      return event.state.phase === "released" ? nodes.map((node) => freed(node, event.task_id)) : nodes;
    default:
      return nodes;
  }
}

/**
 * Whether the event may place tasks on GPUs or add a node. The facts then come with a new answer.
 */
export function changesNodes(event: StoredEvent["event"]): boolean {
  return event.kind === "job_placed" || event.kind === "node_state_changed";
}

function freed(node: NodeView, taskId: string): NodeView {
  if (!node.gpus.some((gpu) => gpu.task_id === taskId)) return node;
  return {
    ...node,
    gpus: node.gpus.map((gpu) => (gpu.task_id === taskId ? { ...gpu, task_id: null, job: null } : gpu)),
  };
}

/**
 * Whether uncordoning opens the node. A report of the node itself, such as a full disk, is ended
 * only by the node.
 */
export function isClosedByPeople({ drained, excluded }: NodeView): boolean {
  return drained || (excluded !== null && excluded.by_itself !== true);
}

/** Returns the name of a slot: a machine without GPUs offers CPU slots. */
export function slotName(gpus: readonly GpuView[]): "GPU" | "CPU slot" {
  return gpus.length > 0 && gpus.every((gpu) => gpu.kind !== "cuda") ? "CPU slot" : "GPU";
}

export interface Usage {
  gpusUsed: number;
  gpusTotal: number;
  nodesUp: number;
  nodesTotal: number;
}

/** Counts GPUs. Lost nodes offer none. */
export function usage(nodes: readonly NodeView[]): Usage {
  const up = nodes.filter((node) => node.state === "up");
  const gpus = up.flatMap((node) => node.gpus);
  return {
    gpusUsed: gpus.filter((gpu) => gpu.job !== null).length,
    gpusTotal: gpus.length,
    nodesUp: up.length,
    nodesTotal: nodes.length,
  };
}

export type Phases = ReadonlyMap<string, JobPhase>;

/** Phases of jobs that have not ended. */
export function foldPhases(phases: Phases, { job_id, event }: StoredEvent): Phases {
  if (job_id === null) return phases;
  const next = new Map(phases);
  if (event.kind === "job_submitted") next.set(job_id, "queued");
  else if (event.kind === "job_deleted") next.delete(job_id);
  else if (event.kind === "job_state_changed") {
    const { phase } = event.state;
    if (phase === "succeeded" || phase === "failed" || phase === "cancelled") next.delete(job_id);
    else next.set(job_id, phase);
  } else return phases;
  return next;
}

export function phaseCount(phases: Phases, ...wanted: JobPhase[]): number {
  let total = 0;
  for (const phase of phases.values()) if (wanted.includes(phase)) total += 1;
  return total;
}

/**
 * Returns the job colour of each job, one of ten. Colours are given by first appearance and kept; a
 * new job gets the least used one.
 */
export function assignColours(
  known: ReadonlyMap<string, number>,
  jobs: readonly string[],
  colours = 10,
): ReadonlyMap<string, number> {
  const next = new Map<string, number>();
  const used = new Array<number>(colours).fill(0);
  const take = (job: string, colour: number) => {
    next.set(job, colour);
    used[colour] = (used[colour] ?? 0) + 1;
  };
  for (const job of jobs) {
    const colour = known.get(job);
    if (colour !== undefined && !next.has(job)) take(job, colour);
  }
  for (const job of jobs) if (!next.has(job)) take(job, used.indexOf(Math.min(...used)));
  return next;
}
