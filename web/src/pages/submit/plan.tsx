// Forecast of a valid document: start, end, and displaced jobs.
import { useEffect, useState } from "react";
import { Link } from "react-router";
import { nodes, plan } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import { useResource } from "../../api/resource";
import type { Interval, JobView, NodeView, PlanView, ShiftedJob } from "../../api/types";
import { Panel } from "../../ui/panel";
import { dates, expectedIn, gpuHours, unforeseenSentence } from "../../words/forecast";
import { bytes, count, plural } from "../../words/number";
import { duration } from "../../words/time";

const UNFORESEEN = "not within what can be foreseen";

export type Answer = { kind: "asking" } | { kind: "planned"; plan: PlanView } | { kind: "refused"; error: ApiError };

/** Asks the scheduler once. Another document needs a new instance. */
export function usePlan(text: string): Answer {
  const [answer, setAnswer] = useState<Answer>({ kind: "asking" });
  useEffect(() => {
    const asking = new AbortController();
    plan(text, asking.signal).then(
      (found) => setAnswer({ kind: "planned", plan: found }),
      (thrown: unknown) => {
        if (!asking.signal.aborted) setAnswer({ kind: "refused", error: fromThrown(thrown) });
      },
    );
    return () => asking.abort();
  }, [text]);
  return answer;
}

/** Text for an event that never happens in the present state of job and cluster. */
export function neverStarts(answer: Answer): boolean {
  return answer.kind === "planned" && isNever(answer.plan);
}

/** A start that depends on the ends of other jobs is unknown, but possible. */
function isNever(plan: PlanView): boolean {
  return plan.start === null && plan.unforeseen !== "behind_others";
}

export function Planned({ answer, spec }: { answer: Answer; spec: JobView["spec"] }) {
  const never = neverStarts(answer);
  return (
    <Panel title="If it were submitted now" className={never ? "panel-warn" : ""}>
      {never ? <Never spec={spec} /> : null}
      {answer.kind === "asking" ? <p className="muted">The scheduler looks ahead …</p> : null}
      {answer.kind === "refused" ? (
        <p className="muted">The scheduler gave no forecast: {answer.error.detail ?? answer.error.title}</p>
      ) : null}
      {answer.kind === "planned" ? <Outlook plan={answer.plan} /> : null}
    </Panel>
  );
}

/**
 * Shows why it never starts, if the capacity of the nodes tells it. The scheduler gives its own
 * reason after the submission.
 */
function Never({ spec }: { spec: JobView["spec"] }) {
  const known = useResource("nodes", (signal) => nodes(signal)).data;
  const why = known === null ? null : lack(spec, known);
  return <p className="why-main">As the job and the cluster are, it never starts{why === null ? "." : `: ${why}`}</p>;
}

/** Uses the scheduler's wording. */
export function lack(spec: JobView["spec"], known: readonly NodeView[]): string | null {
  const least = spec.scale?.workers?.min ?? 1;
  const each = spec.resources?.worker?.gpus ?? 1;
  const all = known.reduce((sum, node) => sum + node.gpus.length, 0);
  if (least * each > all) return `needs ${plural(least * each, "GPU")}; the whole cluster has ${count(all)}`;
  const largest = Math.max(0, ...known.map((node) => node.gpus.length));
  if (each > largest) return `one worker needs ${plural(each, "GPU")}; the largest node has ${count(largest)}`;
  const bytesEach = spec.resources?.worker?.memory_bytes ?? 0;
  const memory = Math.max(0, ...known.map((node) => node.capacity.memory_bytes));
  return bytesEach > memory
    ? `one worker needs ${bytes(bytesEach)} of memory; the largest node has ${bytes(memory)}`
    : null;
}

function Outlook({ plan }: { plan: PlanView }) {
  // Durations count from the time of the forecast, and not from the present time.
  const now = Date.parse(plan.made_at);
  const why = unforeseenSentence(plan.unforeseen);
  return (
    <>
      <dl className="why-facts">
        <dt>Starts</dt>
        <dd className="num" {...(plan.start === null ? {} : { title: dates(plan.start) })}>
          {isNever(plan)
            ? "never"
            : plan.start === null
              ? "unknown"
              : isAtOnce(plan.start, now)
                ? "at once"
                : expectedIn(plan.start, now)}
        </dd>
        <dt>Ends</dt>
        <dd className="num" {...(plan.finish === null ? {} : { title: dates(plan.finish) })}>
          {isNever(plan)
            ? "never"
            : plan.finish === null
              ? why === null
                ? UNFORESEEN
                : `unknown: ${why}`
              : expectedIn(plan.finish, now)}
        </dd>
        {why === null ? (
          <>
            <dt>Would take</dt>
            <dd className="num">{gpuHours(plan.gpu_hours)}</dd>
          </>
        ) : null}
      </dl>
      {plan.own_jobs.length === 0 ? null : (
        <>
          <h3 className="why-head">Your jobs</h3>
          <ul className="shifted">
            {plan.own_jobs.map((job) => (
              <li key={job.id}>
                <Link to={`/jobs/${job.id}`}>{job.name}</Link> {shift(job)}
              </li>
            ))}
          </ul>
        </>
      )}
      <p className="muted planned-others">{others(plan.other_jobs)}</p>
    </>
  );
}

/** Within five seconds in nine of ten cases. */
function isAtOnce(start: Interval, now: number): boolean {
  return Date.parse(start.p90) - now < 5000;
}

function shift(job: ShiftedJob): string {
  const stopped = job.displaced ? "would be stopped for it" : null;
  if (job.later_s === null) return stopped ?? "would have no end that can be foreseen";
  const moved = `would end ${duration(Math.abs(job.later_s))} ${job.later_s > 0 ? "later" : "earlier"}`;
  return stopped === null ? moved : `${stopped} and ${moved}`;
}

function others({ displaced, earlier, later }: PlanView["other_jobs"]): string {
  const told = [
    [displaced, "would be stopped for it"],
    [later, "would end later"],
    [earlier, "would end earlier"],
  ] as const;
  const parts = told
    .filter(([jobs]) => jobs > 0)
    .map(([jobs, what]) => `${plural(jobs, "job")} of other tenants ${what}`);
  return parts.length === 0 ? "No job of another tenant would notice." : `${parts.join("; ")}.`;
}
