// Rows of the job list. On narrow screens the table is laid out as cards, so every cell has its
// heading.
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { JobView } from "../../api/types";
import { isTerminal, isWaiting } from "../../live/job";
import { PhaseChip } from "../../ui/phase";
import { ProgressBar } from "../../ui/progress";
import { useNow } from "../../ui/now";
import { dates, range } from "../../words/forecast";
import { idleText } from "../../words/idle";
import { NONE, loss, percent, splitName } from "../../words/number";
import { age, duration, instant } from "../../words/time";

interface Props {
  jobs: readonly JobView[];
  /** Ids of the chosen jobs. */
  chosen: ReadonlySet<string>;
  onChoose: (chosen: ReadonlySet<string>) => void;
}

export function JobTable({ jobs, chosen, onChoose }: Props) {
  const now = useNow();
  const toggle = (id: string) => {
    const next = new Set(chosen);
    if (!next.delete(id)) next.add(id);
    onChoose(next);
  };
  return (
    <div className="table-wrap">
      <table className="table jobs">
        <caption className="sr-only">Jobs, newest first</caption>
        <thead>
          <tr>
            <th scope="col" className="cell-choice">
              <span className="sr-only">Choose</span>
            </th>
            <th scope="col">Phase</th>
            <th scope="col">Name</th>
            <th scope="col" className="right" title="Running now, and between which numbers the scheduler may choose">
              Workers
            </th>
            <th scope="col" className="right" title="Parameter-server shards: running now, and their range">
              Shards
            </th>
            <th scope="col">Progress</th>
            <th scope="col" className="right">
              Train loss
            </th>
            <th
              scope="col"
              className="right"
              title="Accuracy of the newest evaluation, or its loss where no accuracy is logged; of training until there is an evaluation"
            >
              Evaluation
            </th>
            <th
              scope="col"
              className="right"
              title="Between the two in four cases of five, by the scheduler's forecast"
            >
              Ends in
            </th>
            <th scope="col" className="right">
              Age
            </th>
          </tr>
        </thead>
        <tbody>
          {jobs.map((job) => (
            <JobRow key={job.id} job={job} now={now} chosen={chosen.has(job.id)} onToggle={() => toggle(job.id)} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

interface RowProps {
  job: JobView;
  now: number;
  chosen: boolean;
  onToggle: () => void;
}

function JobRow({ job, now, chosen, onToggle }: RowProps) {
  return (
    <tr>
      <td className="cell-choice">
        <input type="checkbox" checked={chosen} onChange={onToggle} aria-label={`Choose ${job.name}`} />
      </td>
      <td className="cell-phase">
        <PhaseChip phase={job.phase} intent={job.intent} />
      </td>
      <th scope="row" className="cell-name">
        <Link to={`/jobs/${job.id}`} className="job-link">
          {job.name}
        </Link>
        <Labels labels={job.labels} />
        <Note job={job} />
      </th>
      <td className="right num" data-label="Workers">
        <Size size={job.workers} idle={isTerminal(job.phase)} />
      </td>
      <td className="right num" data-label="Shards">
        <Size size={job.ps_shards} idle={isTerminal(job.phase)} />
      </td>
      <td className="cell-progress" data-empty={job.progress === null}>
        <ProgressBar progress={job.progress} phase={job.phase} />
      </td>
      <td className="right num" data-label="Train loss">
        {loss(job.progress?.loss)}
      </td>
      <td className="right num" data-label="Evaluation">
        <Accuracy job={job} />
      </td>
      <td
        className="right num"
        data-label="Ends in"
        {...(job.forecast?.finish ? { title: dates(job.forecast.finish) } : {})}
      >
        {job.forecast?.finish
          ? range(job.forecast.finish, now)
          : job.phase === "running"
            ? duration(job.progress?.eta_s)
            : NONE}
      </td>
      <td className="right num" data-label="Age" title={`Submitted ${instant(job.submitted_at)}`}>
        {age(job.submitted_at, now)}
      </td>
    </tr>
  );
}

function Accuracy({ job }: { job: JobView }) {
  const { progress } = job;
  if (progress === null) return <>{NONE}</>;
  const split = splitName(progress.evaluated_on);
  if (progress.test_accuracy !== null) return <Of split={split}>{percent(progress.test_accuracy, 2)}</Of>;
  if (progress.test_loss !== null) return <Of split={`${split} loss`}>{loss(progress.test_loss)}</Of>;
  if (progress.accuracy === null) return <span className="muted">–</span>;
  return <Of split="train">{percent(progress.accuracy, 2)}</Of>;
}

function Of({ split, children }: { split: string; children: ReactNode }) {
  return (
    <>
      <span className="muted">{split}</span> {children}
    </>
  );
}

function Size({ size, idle }: { size: JobView["workers"]; idle: boolean }) {
  const range = size.min === size.max ? `${size.min}` : `${size.min}–${size.max}`;
  if (idle) return <span className="muted">{range}</span>;
  return (
    <span title={`${size.running} running, ${range} allowed`}>
      {size.running}
      <span className="muted">/{range}</span>
    </span>
  );
}

function Labels({ labels }: { labels: JobView["labels"] }) {
  const entries = Object.entries(labels);
  if (entries.length === 0) return null;
  return (
    <span className="labels">
      {entries.slice(0, 3).map(([key, value]) => (
        <Link
          key={key}
          className="label"
          to={{ pathname: "/jobs", search: new URLSearchParams({ label: `${key}=${value}` }).toString() }}
          title={`Jobs with ${key}=${value}`}
        >
          {key}={value}
        </Link>
      ))}
      {entries.length > 3 ? <span className="label">+{entries.length - 3}</span> : null}
    </span>
  );
}

/** Shows why the job waits or failed, and what would help. */
function Note({ job }: { job: JobView }) {
  if (job.failure !== null && job.phase === "failed") return <p className="note note-bad">{job.failure}</p>;
  if (job.idle !== undefined && job.idle !== null) return <p className="note note-bad">{idleText(job.idle)}</p>;
  if (job.waiting === null || !isWaiting(job.phase)) return null;
  const { message, smallest_change: change, position } = job.waiting;
  return (
    <p className="note">
      {job.phase === "queued" && position > 0 ? <span className="note-position">#{position} in line</span> : null}
      {message}.
      {change === null ? null : (
        <>
          {" "}
          <span className="note-change">Would start now: {change}.</span>
        </>
      )}
    </p>
  );
}
