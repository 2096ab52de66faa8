// Why the job is where it is: what it waits for and what would help, or what gave it its size, and the decisions before.
import { Link } from "react-router";
import type { JobView, StoredEvent } from "../../api/types";
import { decisions, sizeReason } from "../../live/history";
import { isWaiting } from "../../live/job";
import { useNow } from "../../ui/now";
import { Panel } from "../../ui/panel";
import { afterStop, eventSentence, size } from "../../words/event";
import { clock, duration, instant } from "../../words/time";
import { blockers } from "../../words/wait";

const SHOWN = 5;

export function Why({ job, events }: { job: JobView; events: readonly StoredEvent[] }) {
  const now = useNow();
  const past = decisions(events, SHOWN);
  return (
    <Panel title={headline(job)} className={tone(job)}>
      <Reason job={job} events={events} now={now} />
      {past.length === 0 ? null : (
        <>
          <h3 className="why-head">Last decisions</h3>
          <ol className="why-list">
            {past.map((stored) => {
              const said = eventSentence(stored.event);
              return (
                <li key={stored.cursor}>
                  <time className="num muted" dateTime={stored.at} title={instant(stored.at)}>
                    {clock(stored.at, now)}
                  </time>
                  <div>
                    <p>{said.text}</p>
                    {said.detail === null ? null : <p className="muted">{said.detail}</p>}
                  </div>
                </li>
              );
            })}
          </ol>
        </>
      )}
    </Panel>
  );
}

function headline(job: JobView): string {
  if (job.phase === "queued") return "Why it waits";
  if (job.phase === "paused") return "Why it is paused";
  if (job.phase === "failed") return "Why it failed";
  if (job.phase === "stopping") return "Why it stops";
  if (job.phase === "starting" || job.phase === "running") return "Why this size";
  return "How it ended";
}

function tone(job: JobView): string {
  if (job.phase === "failed") return "panel-bad";
  return isWaiting(job.phase) ? "panel-warn" : "";
}

function Reason({ job, events, now }: { job: JobView; events: readonly StoredEvent[]; now: number }) {
  if (job.phase === "failed") return <p className="why-main">{job.failure ?? "No reason was given."}</p>;
  if (isWaiting(job.phase)) return <WaitReason job={job} now={now} />;
  if (job.state.phase === "stopping") return <p className="why-main">Its tasks were told to stop, {afterStop(job.state.then)}.</p>;
  if (job.phase === "succeeded") {
    const finished = events.findLast((stored) => stored.event.kind === "training_finished")?.event;
    return <p className="why-main">{finished?.kind === "training_finished" ? finished.reason : "It trained to its end."}</p>;
  }
  if (job.phase === "cancelled") return <p className="why-main">A user cancelled it.</p>;
  const reason = sizeReason(events);
  if (reason === null) return <p className="why-main">{size(job.workers.running, job.ps_shards.running)}</p>;
  return (
    <>
      <p className="why-main">{size(reason.workers, reason.psShards)}</p>
      <p>{reason.why}</p>
    </>
  );
}

function WaitReason({ job, now }: { job: JobView; now: number }) {
  const { waiting } = job;
  if (waiting === null) return <p className="why-main">{job.phase === "paused" ? "A user paused it." : "The next round considers it."}</p>;
  const blocked = blockers(waiting.detail.why);
  const { why } = waiting.detail;
  return (
    <>
      <p className="why-main">{waiting.message}</p>
      {why.reason === "backing_off" ? <p>Next try in {duration(Math.max(0, (why.until_unix_ms - now) / 1000))}.</p> : null}
      <dl className="why-facts">
        <dt>Reason</dt>
        <dd>
          <code>{waiting.reason}</code>
        </dd>
        {job.phase === "queued" && waiting.position > 0 ? (
          <>
            <dt>In line</dt>
            <dd className="num">{waiting.position}</dd>
          </>
        ) : null}
        <dt>Smallest change</dt>
        <dd>{waiting.smallest_change === null ? "only time helps" : <strong>{waiting.smallest_change}</strong>}</dd>
        {blocked.length > 0 ? (
          <>
            <dt>In the way</dt>
            <dd className="why-jobs">
              {blocked.slice(0, 6).map((id) => (
                <Link key={id} to={`/jobs/${id}`} className="mono" title={id}>
                  {id.slice(0, 8)}
                </Link>
              ))}
              {blocked.length > 6 ? <span className="muted">and {blocked.length - 6} more</span> : null}
            </dd>
          </>
        ) : null}
      </dl>
    </>
  );
}
