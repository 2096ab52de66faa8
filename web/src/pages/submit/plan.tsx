// What would come of a document that is valid: when the job would start and end, and who would make way for it.
import { useEffect, useState } from "react";
import { Link } from "react-router";
import { plan } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import type { Interval, PlanView, ShiftedJob } from "../../api/types";
import { Panel } from "../../ui/panel";
import { dates, expected } from "../../words/forecast";
import { plural } from "../../words/number";
import { duration } from "../../words/time";

const UNFORESEEN = "not within what can be foreseen";

type Answer = { kind: "asking" } | { kind: "planned"; plan: PlanView } | { kind: "refused"; error: ApiError };

/** Asks the scheduler once; with another document it is made anew. */
export function Planned({ text }: { text: string }) {
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
  return (
    <Panel title="If it were submitted now">
      {answer.kind === "asking" ? <p className="muted">The scheduler looks ahead …</p> : null}
      {answer.kind === "refused" ? <p className="muted">The scheduler gave no forecast: {answer.error.detail ?? answer.error.title}</p> : null}
      {answer.kind === "planned" ? <Outlook plan={answer.plan} /> : null}
    </Panel>
  );
}

function Outlook({ plan }: { plan: PlanView }) {
  // Spans count from the state that was looked ahead from, not from whenever this is read.
  const now = Date.parse(plan.made_at);
  return (
    <>
      <dl className="why-facts">
        <dt>Starts</dt>
        <dd className="num" {...(plan.start === null ? {} : { title: dates(plan.start) })}>
          {plan.start === null ? UNFORESEEN : isAtOnce(plan.start, now) ? "at once" : `in ${expected(plan.start, now)}`}
        </dd>
        <dt>Ends</dt>
        <dd className="num" {...(plan.finish === null ? {} : { title: dates(plan.finish) })}>
          {plan.finish === null ? UNFORESEEN : `in ${expected(plan.finish, now)}`}
        </dd>
        <dt>Would take</dt>
        <dd className="num">{plan.gpu_hours.toPrecision(2)} GPU-hours</dd>
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

/** Within a second in nine cases of ten. */
function isAtOnce(start: Interval, now: number): boolean {
  return Date.parse(start.p90) - now < 1000;
}

function shift(job: ShiftedJob): string {
  const stopped = job.displaced ? "would be stopped with a checkpoint" : null;
  if (job.later_s === null) return stopped ?? "would have no end that can be foreseen";
  const moved = `would end ${duration(Math.abs(job.later_s))} ${job.later_s > 0 ? "later" : "earlier"}`;
  return stopped === null ? moved : `${stopped} and ${moved}`;
}

function others({ displaced, earlier, later }: PlanView["other_jobs"]): string {
  const told = [
    [displaced, "would be stopped with a checkpoint"],
    [later, "would end later"],
    [earlier, "would end earlier"],
  ] as const;
  const parts = told.filter(([jobs]) => jobs > 0).map(([jobs, what]) => `${plural(jobs, "job")} of other tenants ${what}`);
  return parts.length === 0 ? "No job of another tenant would notice." : `${parts.join("; ")}.`;
}
