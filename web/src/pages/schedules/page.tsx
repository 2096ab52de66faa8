// The tenant's schedules: planned times, last results, and their jobs.
import { useState } from "react";
import { Link } from "react-router";
import { deleteSchedule, jobs, pauseSchedule, runSchedule, schedules } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import { useResource } from "../../api/resource";
import type { ScheduleView } from "../../api/types";
import { Confirm, type Question } from "../../ui/confirm";
import { useNow } from "../../ui/now";
import { Panel } from "../../ui/panel";
import { PhaseChip } from "../../ui/phase";
import { usePoll } from "../../ui/poll";
import { Empty, Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { age, instant } from "../../words/time";

/** Time between two requests for the schedules, in milliseconds. */
const EVERY_MS = 10_000;
/** Number of jobs that are shown of each schedule. */
const JOBS = 5;

export function SchedulesPage() {
  useTitle("Schedules");
  const list = useResource("schedules", schedules);
  usePoll(EVERY_MS, list.reload);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Schedules</h1>
      </div>
      <p className="muted">
        A schedule submits its job at the times of a cron expression. Its jobs have the label <code>schedule=NAME</code>
        .
      </p>
      {list.error !== null && list.data === null ? <Failure error={list.error} retry={list.reload} /> : null}
      {list.loading ? <Loading label="Loading schedules" rows={3} /> : null}
      {list.data !== null && list.data.length === 0 ? (
        <Empty title="No schedules yet">
          <p>
            Store one from a terminal: <code>muster schedule set nightly --cron &quot;0 3 * * *&quot; job.yaml</code>
          </p>
        </Empty>
      ) : null}
      {list.data?.map((schedule) => (
        <Schedule key={schedule.name} schedule={schedule} onChanged={list.reload} />
      ))}
    </div>
  );
}

function Schedule({ schedule, onChanged }: { schedule: ScheduleView; onChanged: () => void }) {
  const { name, document, paused } = schedule;
  const [question, ask] = useState<Question | null>(null);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const act = (call: () => Promise<void>) => {
    setBusy(true);
    call().then(
      () => {
        setBusy(false);
        setError(null);
        onChanged();
      },
      (thrown: unknown) => {
        setBusy(false);
        setError(fromThrown(thrown));
      },
    );
  };
  const remove = () =>
    ask({
      title: `Delete ${name}?`,
      text: "It submits no more jobs. Its jobs stay.",
      verb: "Delete it",
      danger: true,
      act: async () => {
        await deleteSchedule(name);
        onChanged();
      },
    });
  return (
    <Panel
      title={name}
      className="schedule"
      aside={
        <div className="schedule-actions">
          <button
            type="button"
            className="button button-small"
            disabled={busy}
            onClick={() => act(() => runSchedule(name))}
          >
            Run now
          </button>
          <button
            type="button"
            className="button button-small"
            disabled={busy}
            onClick={() => act(() => pauseSchedule(name, paused === null))}
          >
            {paused === null ? "Pause" : "Resume"}
          </button>
          <button type="button" className="button button-small" onClick={remove}>
            Delete
          </button>
        </div>
      }
    >
      <p>
        <code>{document.cron}</code> in {document.time_zone}, for {schedule.owner}.{" "}
        {document.catch_up === "latest" ? "After a downtime the newest missed time is caught up. " : ""}
        {document.overlap === "skip" ? "A time is skipped while the last job has not ended." : ""}
      </p>
      <Times schedule={schedule} />
      <Result schedule={schedule} />
      <Jobs name={name} last={schedule.last_job} />
      {error === null ? null : <Failure error={error} />}
      {question === null ? null : <Confirm question={question} onClose={() => ask(null)} />}
    </Panel>
  );
}

/** The next planned times, or why there is none. */
function Times({ schedule: { paused, next } }: { schedule: ScheduleView }) {
  if (paused !== null) {
    return (
      <p className="schedule-paused">
        {paused === "by_user"
          ? "Paused: it submits nothing until it is resumed."
          : "Paused: its owner has no valid token. A user stores it again to own its jobs."}
      </p>
    );
  }
  return (
    <dl className="schedule-times">
      <dt>Next</dt>
      {next.map(({ at, local }) => (
        <dd key={at} title={instant(at)} className="num">
          {local}
        </dd>
      ))}
    </dl>
  );
}

/** The result of the newest planned time, unless it is a job, which the list of jobs shows. */
function Result({ schedule: { last } }: { schedule: ScheduleView }) {
  const now = useNow();
  if (last === null || last.result.kind === "submitted") return null;
  const verb = last.result.kind === "refused" ? "Refused" : "Skipped";
  return (
    <p className={last.result.kind === "refused" ? "schedule-refused" : "muted"} title={instant(last.planned_at)}>
      {verb} {age(last.planned_at, now)} ago: {last.result.reason}
    </p>
  );
}

/** The newest jobs. A new last job changes the key, so the list is read again. */
function Jobs({ name, last }: { name: string; last: string | null }) {
  const now = useNow();
  const list = useResource(`schedule ${name} ${last ?? ""}`, (signal) => ofSchedule(name, signal));
  if (list.data === null || list.data.items.length === 0) return null;
  return (
    <ul className="schedule-jobs">
      {list.data.items.map((job) => (
        <li key={job.id}>
          <Link to={`/jobs/${job.id}`}>{job.name}</Link> <PhaseChip phase={job.phase} />{" "}
          <span className="muted" title={instant(job.submitted_at)}>
            {age(job.submitted_at, now)} ago
          </span>
        </li>
      ))}
      <li>
        <Link to={`/jobs?label=${encodeURIComponent(`schedule=${name}`)}`}>All jobs</Link>
      </li>
    </ul>
  );
}

function ofSchedule(name: string, signal: AbortSignal) {
  return jobs({ phase: [], label: `schedule=${name}`, name: "", limit: JOBS, continue: null }, signal);
}
