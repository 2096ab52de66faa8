// Page to submit a job, from an example or from another job's checkpoint.
import { useState, type ReactNode } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import { submit } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { JobView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { count } from "../../words/number";
import { DocumentPage, Valid } from "./document";
import { againOf, forkOf, type Fork } from "./fork";
import { FromTemplate, NO_FORM } from "./from-template";
import { Planned, neverStarts, usePlan } from "./plan";
import { JOB_TEMPLATES } from "./templates";

export function SubmitPage() {
  useTitle("Submit");
  const [params] = useSearchParams();
  const from = params.get("from");
  const again = params.get("again");
  const named = params.get("step");
  const step = named === null || named === "" ? null : Number(named);
  const forked = useResource(from === null ? null : `${from} ${named ?? "newest"}`, (signal) =>
    forkOf(from ?? "", step, signal),
  );
  const same = useResource(from === null ? again : null, (signal) => againOf(again ?? "", signal));
  if (from === null && again !== null) {
    if (same.error !== null) return <Failure error={same.error} retry={same.reload} />;
    if (same.data === null) return <Loading label="Loading the other job" rows={8} />;
    return <OneJob key={`again ${again}`} fork={null} start={same.data} />;
  }
  if (from === null) return <NewJob />;
  if (forked.error !== null) return <Failure error={forked.error} retry={forked.reload} />;
  if (forked.data === null) return <Loading label="Loading the other job" rows={8} />;
  return <OneJob key={`${from} ${named ?? "newest"}`} fork={forked.data} />;
}

/** The draft, an example, or a filled template of the tenant. */
function NewJob() {
  const [form, setForm] = useState(NO_FORM);
  const [filled, setFilled] = useState<{ text: string; count: number } | null>(null);
  const fill = (text: string) => setFilled((before) => ({ text, count: (before?.count ?? 0) + 1 }));
  return (
    <OneJob
      key={filled === null ? "example" : `filled ${filled.count}`}
      fork={null}
      {...(filled === null ? {} : { start: filled.text })}
    >
      <FromTemplate form={form} onForm={setForm} onFilled={fill} />
    </OneJob>
  );
}

function OneJob({ fork, start, children }: { fork: Fork | null; start?: string; children?: ReactNode }) {
  const navigate = useNavigate();
  return (
    <DocumentPage
      title="Submit a job"
      noun="Job"
      verb={{ text: "Submit", busy: "Submitting…" }}
      schema="JobSpec"
      start={fork?.text ?? start ?? null}
      templates={JOB_TEMPLATES}
      send={submit}
      onSent={(job) => void navigate(`/jobs/${job.id}`)}
      help={<Help />}
      checked={(job, text) => <Checked key={text} job={job} text={text} />}
    >
      {fork === null ? children : <Origin fork={fork} />}
    </DocumentPage>
  );
}

function Checked({ job, text }: { job: JobView; text: string }) {
  const answer = usePlan(text);
  return (
    <>
      <Planned answer={answer} spec={job.spec} />
      <Valid document={job.spec} good={!neverStarts(answer)}>
        Nothing was submitted. With every default written out, the job is:
      </Valid>
    </>
  );
}

function Origin({ fork: { parent, checkpoint, raised } }: { fork: Fork }) {
  return (
    <p className="muted">
      It begins from the checkpoint of <Link to={`/jobs/${parent.id}`}>{parent.name}</Link>
      {checkpoint === null
        ? ", which is not there any more"
        : ` after step ${count(checkpoint.step)}, epoch ${checkpoint.epoch.toFixed(2)}`}
      ; this is that job&apos;s document. What counts in <code>stop</code> counts from where that job began
      {raised.length === 0
        ? ", so let it go further."
        : `, and the checkpoint has reached it: it is raised here, ${raised.join(" and ")}.`}
    </p>
  );
}

function Help() {
  return (
    <Panel title="What it says">
      <dl className="terms">
        <dt>engine</dt>
        <dd>The network, its data, the optimizer. The batch is over all workers together and never changes.</dd>
        <dt>scale</dt>
        <dd>Between which numbers of workers and PS shards the scheduler may choose, and change its mind.</dd>
        <dt>exchange</dt>
        <dd>
          How far workers may drift apart: <code>bsp</code> not at all, <code>ssp</code> by <code>staleness</code>{" "}
          steps, <code>asp</code> freely.
        </dd>
        <dt>checkpoint</dt>
        <dd>How much work a lost node may cost, and how many checkpoints stay.</dd>
        <dt>stop</dt>
        <dd>The job is done at the first of these that holds.</dd>
      </dl>
      <p className="muted">
        A dry run checks the document, asks the scheduler what would come of it, and changes nothing.
      </p>
    </Panel>
  );
}
