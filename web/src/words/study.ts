// Texts of studies: phases, states of trials, objectives, and values of metrics and parameters.
import type { Objective, StudyPhase, StudySearch, StudyView, TrialPhase } from "../api/types";
import { NONE, count, loss, percent, plural } from "./number";

interface Said {
  /** Meaning of the phase, for its title. */
  meaning: string;
  /** Job phase with the same colour. */
  like: string;
}

export const STUDY_PHASES: Record<StudyPhase, Said> = {
  created: { meaning: "The scheduler has not seen it yet", like: "queued" },
  running: { meaning: "Trials are created and train", like: "running" },
  paused: { meaning: "Nothing new starts; what trains, trains to the end of its rung", like: "paused" },
  closing: { meaning: "No trial will be created; those that still train are awaited", like: "stopping" },
  finished: { meaning: "The search is over", like: "succeeded" },
  cancelled: { meaning: "Ended by a user, and all its trials with it", like: "cancelled" },
};

export const TRIAL_STATES: Record<TrialPhase, Said> = {
  running: { meaning: "Trains, or waits for GPUs", like: "running" },
  waiting: { meaning: "Has completed its rung and may continue later", like: "queued" },
  stopping: { meaning: "A stop was requested", like: "stopping" },
  completed: { meaning: "Trained to its end", like: "succeeded" },
  stopped: { meaning: "Ended early by the stopper; its checkpoints stay", like: "cancelled" },
  failed: { meaning: "Its training failed", like: "failed" },
};

/** Returns the shown phase. A finished study with only failed trials is marked. */
export function shownPhase({ phase, trials }: StudyView): { word: string; like: string; meaning: string } {
  const allFailed = phase === "finished" && trials.created > 0 && trials.failed === trials.created;
  if (!allFailed) return { word: phase, ...STUDY_PHASES[phase] };
  return { word: "finished, all failed", like: "failed", meaning: "Every trial failed; the table says why" };
}

export function isOver(phase: StudyPhase): boolean {
  return phase === "finished" || phase === "cancelled";
}

/**
 * Whether a job can begin from checkpoints of its trials. Only those of the built-in engine
 * qualify, because only a command itself can read its checkpoints.
 */
export function beginsFromTrials({ document }: StudyView): boolean {
  // The API's document describes the job only as an object.
  const job: Record<string, unknown> | null | undefined = document.job;
  return (job?.engine ?? null) !== null;
}

/**
 * Returns `maximize test_accuracy` or `minimize test_loss to 0.3`, joined for several objectives.
 */
export function goalText(objectives: readonly Objective[]): string {
  return objectives
    .map(
      ({ goal, metric, target }) =>
        `${goal} ${metric}${target === null || target === undefined ? "" : ` to ${metricText(metric, target)}`}`,
    )
    .join(", ");
}

/** Metrics that are shares in every job. A metric of a program has any unit. */
const SHARES: readonly string[] = ["test_accuracy", "train_accuracy"];

export function isShare(metric: string): boolean {
  return SHARES.includes(metric);
}

/** Formats the accuracies of jobs as percent, other values with their significant digits. */
export function metricText(metric: string, value: number | null | undefined): string {
  return isShare(metric) ? percent(value, 2) : loss(value);
}

/** Returns `random, asha; up to 9 epochs a trial, 4 at a time`. */
export function searchText(search: StudySearch): string {
  const how = [search.searcher?.kind, search.stopper?.kind === "none" ? undefined : search.stopper?.kind]
    .filter((word) => word !== undefined)
    .join(", ");
  const { budget } = search;
  const far = budget === undefined ? "" : `; up to ${budgetText(search, budget.max)} a trial`;
  return `${how.replaceAll("_", " ")}${far}${search.concurrency === undefined ? "" : `, ${count(search.concurrency)} at a time`}`;
}

export function budgetText(search: StudySearch, amount: number): string {
  return plural(amount, search.budget?.unit === "steps" ? "step" : "epoch");
}

/**
 * Formats a parameter's value briefly but exactly: integers unchanged, other numbers with four
 * digits.
 */
export function parameterText(value: unknown): string {
  if (value === undefined || value === null) return NONE;
  if (typeof value === "string") return value;
  if (typeof value !== "number") return JSON.stringify(value);
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(4)));
}
