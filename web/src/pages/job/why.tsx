// Explanation of the job's state: what it waits for and what would help, or the reason for its size
// and the gain of one more worker; and earlier decisions.
import { Link } from "react-router";
import type { Accuracy, Explanation, Intent, JobView, NodeObstacle, StoredEvent, Wait } from "../../api/types";
import { decisions, sizeReason } from "../../live/history";
import { isTerminal, isWaiting, usesGpus } from "../../live/job";
import { useNow } from "../../ui/now";
import { Panel } from "../../ui/panel";
import { detailLine, size, who } from "../../words/event";
import { dates, expected, gpuHours, heldSentence, unforeseenSentence } from "../../words/forecast";
import { count, percent, plural, rate } from "../../words/number";
import { clock, duration, instant } from "../../words/time";

const SHOWN = 5;

interface Props {
  job: JobView;
  events: readonly StoredEvent[];
  explanation: Explanation | null;
  accuracy: Accuracy | null;
}

export function Why({ job, events, explanation, accuracy }: Props) {
  const now = useNow();
  const past = decisions(events, SHOWN);
  return (
    <Panel title={headline(job)} className={tone(job)}>
      <Reason job={job} events={events} explanation={explanation} now={now} />
      {job.last_failure === null || isTerminal(job.phase) ? null : (
        <p className="note note-bad">
          Failed {plural(job.failures, "time")} so far, the last time: {job.last_failure}
        </p>
      )}
      <Expected job={job} accuracy={accuracy} now={now} />
      {past.length === 0 ? null : (
        <>
          <h3 className="why-head">Last decisions</h3>
          <ol className="why-list">
            {past.map((stored) => {
              const detail = detailLine(stored);
              return (
                <li key={stored.cursor}>
                  <time className="num muted" dateTime={stored.at} title={instant(stored.at)}>
                    {clock(stored.at, now)}
                  </time>
                  <div>
                    <p>{stored.message}</p>
                    {detail === null ? null : <p className="muted">{detail}</p>}
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
  if (job.phase === "suspended") return "Why it is suspended";
  if (job.phase === "starting" || job.phase === "running") return "Why this size";
  return "How it ended";
}

function tone(job: JobView): string {
  if (job.phase === "failed") return "panel-bad";
  return isWaiting(job.phase) ? "panel-warn" : "";
}

function Reason({ job, events, explanation, now }: Omit<Props, "accuracy"> & { now: number }) {
  if (job.phase === "failed") return <p className="why-main">{job.failure ?? "No reason was given."}</p>;
  if (isWaiting(job.phase)) return <WaitReason job={job} events={events} explanation={explanation} now={now} />;
  if (job.phase === "stopping") {
    const stop = events.findLast((stored) => stored.event.kind === "job_stop_requested");
    return <p className="why-main">{stop?.message ?? "Its tasks were asked to stop."}</p>;
  }
  if (job.phase === "succeeded") {
    const finished = events.findLast((stored) => stored.event.kind === "training_finished")?.event;
    return (
      <p className="why-main">{finished?.kind === "training_finished" ? finished.reason : "It trained to its end."}</p>
    );
  }
  if (job.phase === "suspended") {
    const turned = events.findLast((stored) => stored.event.kind === "job_turned")?.event;
    return (
      <p className="why-main">
        {turned?.kind === "job_turned" ? turned.why : "It shares its GPUs with other jobs by time slicing."}
      </p>
    );
  }
  if (job.phase === "cancelled") return <p className="why-main">{asker(events, "cancel")} cancelled it.</p>;
  const reason = sizeReason(events);
  return (
    <>
      <p className="why-main">
        {reason === null ? size(job.workers.running, job.ps_shards.running) : size(reason.workers, reason.psShards)}
      </p>
      {reason === null ? null : <p>{reason.why}</p>}
      <SizeFacts job={job} explanation={explanation} />
    </>
  );
}

/**
 * Shows the figures of a running job's size: its own next step and the best one that was refused.
 */
function SizeFacts({ job, explanation }: { job: JobView; explanation: Explanation | null }) {
  const decided = explanation?.decided ?? null;
  if (decided === null) return null;
  const { next_worker_gain: gain, runner_up: other, steps_per_s: speed, steps_left: left, batch } = decided;
  return (
    <dl className="why-facts">
      {decided.why === "" ? null : (
        <>
          <dt>Now</dt>
          <dd>{decided.why}</dd>
        </>
      )}
      {usesGpus(job.spec) ? (
        <>
          <dt title="Seconds saved per share of the cluster">One worker more</dt>
          <dd className="num">{gain === null ? "no gain" : `would gain ${count(gain)}`}</dd>
        </>
      ) : null}
      {other === null || other.job_id === job.id ? null : (
        <>
          <dt title="The job that would have received the next GPU">Runner-up</dt>
          <dd>
            {other.name === null ? "another tenant's job" : <Link to={`/jobs/${other.job_id}`}>{other.name}</Link>}
            <span className="num"> would gain {count(other.gain)}</span>
          </dd>
        </>
      )}
      {speed === null ? null : (
        <>
          <dt>Speed</dt>
          <dd className="num">
            {rate(speed)} steps/s <span className="muted">{basis(decided.measured_sizes, decided.speed_error)}</span>
          </dd>
        </>
      )}
      {batch === null ? null : (
        <>
          <dt>Batch</dt>
          <dd>{batch.message}</dd>
        </>
      )}
      {left === null ? null : (
        <>
          <dt>Left</dt>
          <dd className="num">
            {count(left)} steps
            {decided.steps_left_between === null ? null : (
              <span className="muted" title="The 80 % interval">
                {" "}
                ({count(decided.steps_left_between[0] ?? left)} to {count(decided.steps_left_between[1] ?? left)})
              </span>
            )}
            , {duration(decided.time_left_s)} at this size
          </dd>
        </>
      )}
    </dl>
  );
}

function basis(sizes: number, error: number | null): string {
  if (sizes === 0) return "a guess: nothing is measured yet";
  const measured = `measured at ${plural(sizes, "size")}`;
  return error === null ? measured : `${measured}, ${percent(error, 0)} off in the mean`;
}

/** Shows the expected start and end, and the accuracy of such forecasts. */
function Expected({ job, accuracy, now }: { job: JobView; accuracy: Accuracy | null; now: number }) {
  const { forecast } = job;
  if (forecast === null) return null;
  const why = unforeseenSentence(forecast.unforeseen);
  if (forecast.start === null && forecast.finish === null && why === null) return null;
  const held = heldSentence(accuracy);
  return (
    <>
      <h3 className="why-head">Forecast</h3>
      <dl className="why-facts why-forecast">
        {forecast.start === null ? null : (
          <>
            <dt>Starts in</dt>
            <dd className="num" title={dates(forecast.start)}>
              {expected(forecast.start, now)}
            </dd>
          </>
        )}
        {forecast.finish === null ? null : (
          <>
            <dt>Ends in</dt>
            <dd className="num" title={dates(forecast.finish)}>
              {expected(forecast.finish, now)}
            </dd>
          </>
        )}
        {why === null ? (
          <>
            <dt>Will take</dt>
            <dd className="num">{gpuHours(forecast.gpu_s / 3600)}</dd>
          </>
        ) : (
          <>
            <dt>Ends</dt>
            <dd>unknown: {why}</dd>
          </>
        )}
      </dl>
      {held === null ? null : <p className="muted why-held">{held}</p>}
    </>
  );
}

/** Returns the user with the newest request of this intent. */
function asker(events: readonly StoredEvent[], intent: Intent): string {
  const asked = events.findLast(
    (stored) => stored.event.kind === "intent_changed" && stored.event.intent === intent,
  )?.event;
  return who(asked?.kind === "intent_changed" ? asked.by : null);
}

function WaitReason({ job, events, explanation, now }: Omit<Props, "accuracy"> & { now: number }) {
  const { waiting } = job;
  if (waiting === null)
    return (
      <p className="why-main">
        {job.phase === "paused" ? `${asker(events, "pause")} paused it.` : "The next round considers it."}
      </p>
    );
  const blocked = blockers(waiting.detail.why);
  const { why } = waiting.detail;
  const way = explanation?.in_the_way;
  const known = new Map((way?.jobs ?? []).map((other) => [other.id, other]));
  return (
    <>
      <p className="why-main">{waiting.message}</p>
      {why.reason === "backing_off" ? (
        <p>Next try in {duration(Math.max(0, (why.until_unix_ms - now) / 1000))}.</p>
      ) : null}
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
        <dd>
          {waiting.smallest_change === null ? (
            waiting.for_good ? (
              "no single change; as the job and the cluster are, it never starts"
            ) : (
              "only time helps"
            )
          ) : (
            <strong>{waiting.smallest_change}</strong>
          )}
        </dd>
        {blocked.length > 0 ? (
          <>
            <dt>Blocked by</dt>
            <dd className="why-jobs">
              {blocked.slice(0, 6).map((id) => (
                <Link key={id} to={`/jobs/${id}`} className="mono" title={id}>
                  {known.get(id)?.name ?? id.slice(0, 8)}
                  {known.has(id) ? (
                    <span className="muted"> {plural(known.get(id)?.held_gpus ?? 0, "GPU")}</span>
                  ) : null}
                </Link>
              ))}
              {blocked.length > 6 ? <span className="muted">and {blocked.length - 6} more</span> : null}
            </dd>
          </>
        ) : null}
        {way?.quota ? (
          <>
            <dt>Quota</dt>
            <dd className="num">
              {way.quota.used_gpus} of {plural(way.quota.gpu_quota, "GPU")} held, {way.quota.needed_gpus} needed
            </dd>
          </>
        ) : null}
        {way !== undefined && way.nodes.length > 0 ? (
          <>
            <dt>Nodes</dt>
            <dd>
              {way.nodes.slice(0, 6).map((node) => (
                <p key={node.name}>
                  <span className="mono">{node.name}</span>{" "}
                  {usesGpus(job.spec) ? (
                    <span className="num">
                      {node.free_gpus} of {node.gpus} free
                    </span>
                  ) : null}
                  <span className="muted"> {obstacle(node.why)}</span>
                </p>
              ))}
            </dd>
          </>
        ) : null}
      </dl>
    </>
  );
}

/** Returns the jobs that the job waits for, for links. */
function blockers(why: Wait): string[] {
  if (why.reason === "waiting_for_gpus") return why.held_by;
  if (why.reason === "waiting_for_preempted_workloads" || why.reason === "waiting_for_jobs") return why.jobs;
  return [];
}

function obstacle(why: NodeObstacle): string {
  switch (why) {
    case "busy":
      return "other jobs hold the rest";
    case "not_enough":
      return "not enough for its minimum";
    case "kept":
      return "kept for jobs that precede it";
    case "no_cpu_or_memory":
      return "too little CPU or memory is free, or kept for jobs that precede it";
    case "too_small":
      return "too small for one worker";
    case "forbidden":
      return "the job's constraints exclude it";
    case "no_pods":
      return "runs tasks as processes, and the job's must be pods";
    case "no_images":
      return "cannot run images, and the job has one";
    case "drained":
      return "drained";
    case "down":
      return "down";
  }
}
