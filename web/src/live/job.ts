// Applies events and samples to the page's state of jobs. Pure. The API's answer is authoritative;
// these functions update the view between two answers.
import type { Evaluation, JobPhase, JobView, SampleView, StoredEvent } from "../api/types";

export function isTerminal(phase: JobPhase): boolean {
  return phase === "succeeded" || phase === "failed" || phase === "cancelled";
}

export function isWaiting(phase: JobPhase): boolean {
  return phase === "queued" || phase === "paused";
}

/** Whether the job's workers hold GPUs or CPU slots. */
export function usesGpus(spec: JobView["spec"]): boolean {
  return (spec.resources?.worker?.gpus ?? 1) > 0;
}

/** Returns the job after one of its events; the same object if nothing shown changes. */
export function foldEvent(job: JobView, { at, job_id, event, waiting }: StoredEvent): JobView {
  if (job_id !== job.id) return job;
  switch (event.kind) {
    case "job_state_changed": {
      const { phase } = event.state;
      const holds = phase === "starting" || phase === "running" || phase === "stopping";
      return {
        ...job,
        phase,
        state: event.state,
        revision: event.revision,
        waiting: isWaiting(phase) ? job.waiting : null,
        workers: holds ? job.workers : { ...job.workers, running: 0 },
        ps_shards: holds ? job.ps_shards : { ...job.ps_shards, running: 0 },
        failure: event.state.phase === "failed" ? event.state.reason : job.failure,
        started_at: phase === "running" ? (job.started_at ?? at) : job.started_at,
        finished_at: isTerminal(phase) ? at : job.finished_at,
      };
    }
    case "job_placed":
      return { ...job, revision: event.revision };
    case "job_waits":
      return { ...job, waiting: waiting ?? job.waiting };
    case "intent_changed":
      return { ...job, intent: event.intent };
    case "training_finished":
      return { ...job, model_path: event.model_path === "" ? null : event.model_path };
    case "evaluated":
      if (job.progress === null) return job;
      return {
        ...job,
        progress: {
          ...job.progress,
          test_accuracy: event.accuracy,
          test_loss: event.loss,
          evaluated_on: event.split ?? "test",
        },
      };
    default:
      return job;
  }
}

/**
 * Returns the job after a sample. An older sample, as in a replay after a reconnect, changes
 * nothing.
 */
export function foldSample(job: JobView, sample: SampleView): JobView {
  const before = job.progress;
  if (before?.sampled_at != null && Date.parse(sample.at) <= Date.parse(before.sampled_at)) return job;
  const total = before?.total_steps ?? null;
  // A command that reports epoch 0 logs no epochs.
  const epoch = job.spec.command != null && sample.epoch === 0 ? null : sample.epoch;
  const left = total === null ? null : Math.max(0, total - sample.step);
  return {
    ...job,
    progress: {
      step: sample.step,
      total_steps: total,
      epoch,
      loss: sample.loss,
      accuracy: sample.accuracy,
      test_accuracy: before?.test_accuracy ?? null,
      test_loss: before?.test_loss ?? null,
      evaluated_on: before?.evaluated_on ?? null,
      examples_per_s: sample.examples_per_s,
      steps_per_s: sample.steps_per_s,
      ...(sample.gain == null ? {} : { gain: sample.gain }),
      eta_s: left === null || sample.steps_per_s <= 0 ? null : left / sample.steps_per_s,
      sampled_at: sample.at,
    },
  };
}

/**
 * Returns the series with new samples, which replace all after `afterStep`. After a failure,
 * training continues from an older checkpoint, and later samples are lost.
 */
export function replaceAfter(
  series: readonly SampleView[],
  afterStep: number,
  samples: readonly SampleView[],
): readonly SampleView[] {
  const last = series[series.length - 1];
  const kept =
    last === undefined || last.step <= afterStep ? series : series.filter((sample) => sample.step <= afterStep);
  return [...kept, ...samples];
}

export function appendEvaluation<T extends Evaluation>(series: readonly T[], evaluation: T): readonly T[] {
  return [...series.filter((kept) => kept.step < evaluation.step), evaluation];
}

/**
 * Adds an event in the order of cursors, without duplicates. New events are nearly always the last,
 * so the others are not sorted again.
 */
export function appendEvent(events: readonly StoredEvent[], event: StoredEvent): readonly StoredEvent[] {
  return events.some((known) => known.cursor === event.cursor) ? events : [...events, event];
}
