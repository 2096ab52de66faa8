// The document of a job that begins from another job's checkpoint.
import { checkpoints, job as jobOf } from "../../api/calls";
import type { CheckpointView, JobView } from "../../api/types";
import { toYaml } from "../../words/document";

const ENGINE_FIELDS = new Set(["exchange", "checkpoint", "evaluate"]);

export interface Fork {
  parent: JobView;
  text: string;
  /** The checkpoint that it begins from; null if it is not there any more, which the api will say too. */
  checkpoint: CheckpointView | null;
  /** What in `stop` the checkpoint has reached already, and is therefore further away in the new document. */
  raised: string[];
}

export async function forkOf(id: string, step: number | null, signal?: AbortSignal): Promise<Fork> {
  const [parent, written] = await Promise.all([jobOf(id, signal), checkpoints(id, signal)]);
  return { parent, ...documentOf(parent, written, step) };
}

/** The document of a job as that of another, which begins from nothing of it but what it began from itself. */
export async function againOf(id: string, signal?: AbortSignal): Promise<string> {
  return toYaml(ownFields(unlabelled((await jobOf(id, signal)).spec)));
}

/** Without what only the built-in engine has: the api writes its defaults into every spec, and a command's document has no such fields. */
export function ownFields(spec: JobView["spec"]): JobView["spec"] {
  if (spec.command == null) return spec;
  const own = Object.fromEntries(Object.entries(spec).filter(([name]) => !ENGINE_FIELDS.has(name))) as JobView["spec"];
  if (own.resources?.worker === undefined) return own;
  return { ...own, resources: { worker: own.resources.worker } };
}

/** Labels of Muster's own say whose the first one is, such as by which object of Kubernetes it was made, and would make two of one. */
function unlabelled(spec: JobView["spec"]): JobView["spec"] {
  if (spec.labels === undefined) return spec;
  const labels = Object.entries(spec.labels).filter(([name]) => !name.startsWith("muster.dev/"));
  return { ...spec, labels: Object.fromEntries(labels) };
}

/** From the checkpoint of `step`, or else the newest. */
export function documentOf(parent: JobView, written: readonly CheckpointView[], step: number | null): Omit<Fork, "parent"> {
  const kept = written.filter((one) => one.retained).sort((a, b) => b.step - a.step || b.revision - a.revision);
  const checkpoint = (step === null ? kept[0] : kept.find((one) => one.step === step)) ?? null;
  const from = { job: parent.id, ...(step === null ? {} : { step }) };
  const { stop, raised } = further(parent.spec.stop, checkpoint);
  return { text: toYaml({ ...unlabelled(parent.spec), ...(stop === undefined ? {} : { stop }), from }), checkpoint, raised };
}

/** Twice as far where the checkpoint has come to the end: epochs and steps count from where the other job began. */
function further(stop: JobView["spec"]["stop"], checkpoint: CheckpointView | null): { stop: JobView["spec"]["stop"]; raised: string[] } {
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
