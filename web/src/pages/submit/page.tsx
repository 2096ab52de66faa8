// Submitting a job: the document, a check of it, and what is wrong with it beside the lines that are wrong.
import { useEffect, useId, useRef, useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import { job as jobOf, submit } from "../../api/calls";
import { newKey } from "../../api/key";
import { fromThrown, type ApiError } from "../../api/problem";
import type { JobView } from "../../api/types";
import { Icon } from "../../ui/icon";
import { Panel } from "../../ui/panel";
import { useTitle } from "../../ui/title";
import { lineOf, toYaml } from "../../words/document";
import { Editor, goToLine } from "./editor";
import { EXAMPLE } from "./example";
import { Planned } from "./plan";
import { Refused } from "./refused";

type Outcome = { kind: "checked"; text: string; job: JobView } | { kind: "refused"; error: ApiError };

export function SubmitPage() {
  useTitle("Submit");
  const navigate = useNavigate();
  const area = useRef<HTMLTextAreaElement>(null);
  const result = useId();
  const [text, setText] = useState(EXAMPLE);
  const [params] = useSearchParams();
  const from = params.get("from");
  const step = params.get("step");
  const [busy, setBusy] = useState<"check" | "submit" | null>(null);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  // One key a document: a second click, or a retry after a lost answer, submits the same job and not another one.
  const key = useRef({ text: "", value: "" });

  useEffect(() => {
    if (from === null) return;
    const asking = new AbortController();
    jobOf(from, asking.signal).then(
      (parent) => setText(forkOf(parent, step)),
      (thrown: unknown) => {
        if (!asking.signal.aborted) setOutcome({ kind: "refused", error: fromThrown(thrown) });
      },
    );
    return () => asking.abort();
  }, [from, step]);

  const send = (dryRun: boolean) => {
    if (key.current.text !== text) key.current = { text, value: newKey() };
    setBusy(dryRun ? "check" : "submit");
    submit(text, dryRun, key.current.value).then(
      (job) => {
        setBusy(null);
        if (dryRun) setOutcome({ kind: "checked", text, job });
        else void navigate(`/jobs/${job.id}`);
      },
      (thrown: unknown) => {
        setBusy(null);
        setOutcome({ kind: "refused", error: fromThrown(thrown) });
      },
    );
  };
  const wrong = outcome?.kind === "refused" ? outcome.error.fields : [];
  const marked = new Set(wrong.flatMap((error) => lineOf(text, error.field) ?? []));

  return (
    <div className="page">
      <div className="page-head">
        <h1>Submit a job</h1>
        <div className="actions">
          <button type="button" className="button" disabled={busy !== null || text.trim() === ""} onClick={() => send(true)}>
            {busy === "check" ? "Checking…" : "Dry run"}
          </button>
          <button type="button" className="button button-primary" disabled={busy !== null || text.trim() === ""} onClick={() => send(false)}>
            {busy === "submit" ? "Submitting…" : "Submit"}
          </button>
        </div>
      </div>
      {from === null ? null : (
        <p className="muted">
          It begins from a checkpoint of <Link to={`/jobs/${from}`}>another job</Link>, whose document this is: what counts in <code>stop</code> counts from where that job
          began, so let it go further.
        </p>
      )}
      <div className="submit">
        <Panel title="Job document" aside={<ExampleButton shown={text !== EXAMPLE} onUse={() => setText(EXAMPLE)} />} className="panel-flush">
          <Editor
            ref={area}
            value={text}
            onChange={(next) => {
              setText(next);
              if (outcome?.kind === "checked") setOutcome(null);
            }}
            label="Job document, YAML or JSON"
            marked={marked}
            describedBy={result}
          />
        </Panel>
        <div id={result} className="submit-result" aria-live="polite">
          {outcome === null ? <Help /> : null}
          {outcome?.kind === "checked" ? (
            <>
              <Planned key={outcome.text} text={outcome.text} />
              <Checked job={outcome.job} />
            </>
          ) : null}
          {outcome?.kind === "refused" ? (
            <Refused
              error={outcome.error}
              text={text}
              onGo={(line) => {
                if (area.current !== null) goToLine(area.current, line);
              }}
            />
          ) : null}
        </div>
      </div>
    </div>
  );
}

/** The other job's document, as one that begins from its checkpoint: of `step`, or else the newest. */
function forkOf(parent: JobView, step: string | null): string {
  const origin = { job: parent.id, ...(step === null ? {} : { step: Number(step) }) };
  return toYaml({ ...parent.spec, from: origin });
}

function ExampleButton({ shown, onUse }: { shown: boolean; onUse: () => void }) {
  return shown ? (
    <button type="button" className="button button-small" onClick={onUse}>
      Back to the example
    </button>
  ) : null;
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
          How far workers may drift apart: <code>bsp</code> not at all, <code>ssp</code> by <code>staleness</code> steps, <code>asp</code> freely.
        </dd>
        <dt>checkpoint</dt>
        <dd>How much work a lost node may cost, and how many checkpoints stay.</dd>
        <dt>stop</dt>
        <dd>The job is done at the first of these that holds.</dd>
      </dl>
      <p className="muted">A dry run checks the document, asks the scheduler what would come of it, and changes nothing.</p>
    </Panel>
  );
}

function Checked({ job }: { job: JobView }) {
  return (
    <Panel title="The document is valid" aside={<Icon name="check" />} className="panel-good">
      <p>Nothing was submitted. With every default written out, the job is:</p>
      <pre className="document">{toYaml(job.spec)}</pre>
    </Panel>
  );
}
