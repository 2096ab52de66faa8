// The document of a job that begins from another job's checkpoint.
import { checkpoints, job as jobOf } from "../../api/calls";
import type { CheckpointView, JobView } from "../../api/types";
import { toYaml } from "../../words/document";

const ENGINE_FIELDS = new Set(["exchange", "checkpoint", "evaluate"]);

export interface Fork {
  parent: JobView;
  text: string;
  /**
   * The checkpoint from which it begins; null if it does not exist any more, which the API also
   * reports.
   */
  checkpoint: CheckpointView | null;
  /** Limits in `stop` that the checkpoint has already reached, which the new document extends. */
  raised: string[];
}

export async function forkOf(id: string, step: number | null, signal?: AbortSignal): Promise<Fork> {
  const [parent, written] = await Promise.all([jobOf(id, signal), checkpoints(id, signal)]);
  return { parent, ...documentOf(parent, written, step) };
}

/** Returns the document of a fork, which begins from nothing but what the job itself began from. */
export async function againOf(id: string, signal?: AbortSignal): Promise<string> {
  return toYaml(ownFields(unlabelled((await jobOf(id, signal)).spec)));
}

/**
 * Removes the fields of the built-in engine: the API adds their defaults to every spec, but a
 * command's document has no such fields.
 */
export function ownFields(spec: JobView["spec"]): JobView["spec"] {
  if (spec.command == null) return spec;
  const kept = Object.entries(spec).filter(([name]) => !ENGINE_FIELDS.has(name));
  const checkpoint = ownCheckpoint(spec.checkpoint);
  const all = checkpoint === undefined ? kept : [...kept, ["checkpoint", checkpoint]];
  const own = Object.fromEntries(all) as JobView["spec"];
  if (own.resources?.worker === undefined) return own;
  return { ...own, resources: { worker: own.resources.worker } };
}

/** Number of newest checkpoints that stay by default. */
const KEEP = 3;

/** Returns what a command's document says about checkpoints, if anything. */
function ownCheckpoint(policy: JobView["spec"]["checkpoint"]): Record<string, unknown> | undefined {
  if (policy === undefined) return undefined;
  const { files, keep = KEEP, keep_best } = policy;
  const own = {
    ...(files == null ? {} : { files }),
    ...(keep === KEEP ? {} : { keep }),
    ...(keep_best == null ? {} : { keep_best }),
  };
  return Object.keys(own).length === 0 ? undefined : own;
}

/** Labels that describe the code, the array and the schedule of one submission. */
const OF_SUBMISSION = new Set(["git-commit", "git-changed", "array", "schedule"]);

/**
 * Removes what belongs to the first job: labels of Muster, for example of its Kubernetes object,
 * those of its code, and the jobs that it waited for.
 */
function unlabelled(spec: JobView["spec"]): JobView["spec"] {
  const own = { ...spec };
  delete own.after;
  delete own.array;
  if (own.labels === undefined) return own;
  const labels = Object.entries(own.labels).filter(
    ([name]) => !name.startsWith("muster.dev/") && !OF_SUBMISSION.has(name),
  );
  return { ...own, labels: Object.fromEntries(labels) };
}

/** Begins from the checkpoint of `step`, or from the newest. */
export function documentOf(
  parent: JobView,
  written: readonly CheckpointView[],
  step: number | null,
): Omit<Fork, "parent"> {
  const kept = written.filter((one) => one.retained).sort((a, b) => b.step - a.step || b.revision - a.revision);
  const checkpoint = (step === null ? kept[0] : kept.find((one) => one.step === step)) ?? null;
  const from = { job: parent.id, ...(step === null ? {} : { step }) };
  const { stop, raised } = further(parent.spec.stop, checkpoint);
  return {
    text: toYaml({ ...ownFields(unlabelled(parent.spec)), ...(stop === undefined ? {} : { stop }), from }),
    checkpoint,
    raised,
  };
}

/**
 * Doubles a limit that the checkpoint has reached. Epochs and steps count from the other job's
 * start.
 */
function further(
  stop: JobView["spec"]["stop"],
  checkpoint: CheckpointView | null,
): { stop: JobView["spec"]["stop"]; raised: string[] } {
  if (stop === undefined || checkpoint === null) return { stop, raised: [] };
  const raised: string[] = [];
  const next = { ...stop };
  // An epoch may end a rounding error early.
  if (typeof stop.epochs === "number" && checkpoint.epoch >= stop.epochs - 1e-6) {
    next.epochs = stop.epochs * 2;
    raised.push(`stop.epochs from ${stop.epochs} to ${next.epochs}`);
  }
  if (typeof stop.steps === "number" && checkpoint.step >= stop.steps) {
    next.steps = stop.steps * 2;
    raised.push(`stop.steps from ${stop.steps} to ${next.steps}`);
  }
  return { stop: next, raised };
}
