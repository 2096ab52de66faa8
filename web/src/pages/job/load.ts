// Data of the job page, loaded once and then updated by the job's own stream.
import { useEffect, useRef } from "react";
import { accuracy, checkpoints, events, explain, job, progress, tasks } from "../../api/calls";
import { isGone } from "../../api/problem";
import { useResource, type Resource } from "../../api/resource";
import type {
  Accuracy,
  CheckpointView,
  Explanation,
  JobView,
  Progress,
  SampleView,
  StoredEvent,
  TaskView,
} from "../../api/types";
import { appendEvaluation, appendEvent, foldEvent, foldSample, isTerminal, replaceAfter } from "../../live/job";
import { decode } from "../../live/messages";
import { openStream } from "../../live/stream";
import { usePoll } from "../../ui/poll";

export interface JobData {
  job: Resource<JobView>;
  tasks: Resource<TaskView[]>;
  events: Resource<StoredEvent[]>;
  progress: Resource<Progress>;
  checkpoints: Resource<CheckpointView[]>;
  explanation: Resource<Explanation>;
  accuracy: Resource<Accuracy>;
}

/** The explanation changes with every round, but the stream contains only decisions. */
const EXPLAIN_EVERY_MS = 10_000;

/** Maximum number of samples. Beyond it, every second one of the older half is dropped. */
const KEPT_SAMPLES = 4000;

export function useJobData(id: string): JobData {
  const data: JobData = {
    job: useResource(id, (signal) => job(id, signal)),
    tasks: useResource(id, (signal) => tasks(id, signal)),
    events: useResource(id, (signal) => events(id, signal)),
    progress: useResource(id, (signal) => progress(id, signal)),
    checkpoints: useResource(id, (signal) => checkpoints(id, signal)),
    explanation: useResource(id, (signal) => explain(id, signal)),
    accuracy: useResource(id, (signal) => accuracy(signal)),
  };
  const latest = useRef(data);
  useEffect(() => {
    latest.current = data;
  });
  useEffect(() => {
    let first = true;
    return openStream(`/api/v1/jobs/${id}/stream`, {
      onMessage: (message) => {
        // Data loaded before the stream opened may lack events in between. A reconnect resumes by
        // itself.
        if (message.event === "opened" && first) {
          first = false;
          for (const resource of Object.values(latest.current) as Resource<unknown>[]) resource.reload();
        }
        const decoded = decode(message);
        if (decoded?.kind === "event") onEvent(latest.current, decoded.event);
        if (decoded?.kind === "progress") onSamples(latest.current, decoded.afterStep, decoded.samples);
      },
    });
  }, [id]);
  // A deleted job is not requested again. An ended job does not change; a restart of it comes by
  // the stream.
  const { data: known, error } = data.job;
  const still = isGone(error) || (known !== null && isTerminal(known.phase));
  usePoll(still ? 0 : EXPLAIN_EVERY_MS, () => {
    data.explanation.reload();
    // The forecast is part of the job.
    data.job.reload();
  });
  return data;
}

function onEvent(data: JobData, event: StoredEvent): void {
  data.job.update((known) => foldEvent(known, event));
  data.events.update((known) => [...appendEvent(known, event)]);
  switch (event.event.kind) {
    case "task_state_changed":
    case "job_placed":
      data.tasks.reload();
      data.explanation.reload();
      break;
    case "job_waits":
      data.explanation.reload();
      break;
    case "job_deleted":
    case "job_edited":
      data.job.reload();
      break;
    case "checkpoint_written":
    case "checkpoint_pruned":
      data.checkpoints.reload();
      break;
    case "evaluated": {
      const { step, epoch, split = "test", loss, accuracy } = event.event;
      // A command may log no training loss; its first evaluation is then its first progress.
      if (data.job.data?.progress === null) data.job.reload();
      data.progress.update((known) => ({
        ...known,
        evaluations: [...appendEvaluation(known.evaluations, { at: event.at, step, epoch, split, loss, accuracy })],
      }));
      break;
    }
    case "job_state_changed":
      // Events lack these sums: failures, total steps, and the task set of the new revision.
      data.job.reload();
      data.tasks.reload();
      data.explanation.reload();
      break;
    default:
      break;
  }
}

function onSamples(data: JobData, afterStep: number, samples: readonly SampleView[]): void {
  const newest = samples[samples.length - 1];
  if (newest === undefined) return;
  data.job.update((known) => (known.progress === null ? known : foldSample(known, newest)));
  // The total number of steps comes with the first sample, but only in the job's answer.
  if (data.job.data?.progress === null) data.job.reload();
  data.progress.update((known) => ({ ...known, samples: thinned(replaceAfter(known.samples, afterStep, samples)) }));
}

function thinned(samples: readonly SampleView[]): SampleView[] {
  if (samples.length <= KEPT_SAMPLES) return [...samples];
  const half = samples.length >> 1;
  return samples.filter((_, index) => index >= half || index % 2 === 0);
}
