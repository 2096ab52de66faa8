// Creating a study: the document, a check of it, and what is wrong with it beside the lines that are wrong.
import { useId, useRef, useState } from "react";
import { useNavigate } from "react-router";
import { newKey } from "../../api/key";
import { fromThrown, type ApiError } from "../../api/problem";
import { createStudy } from "../../api/studies";
import type { StudyView } from "../../api/types";
import { Icon } from "../../ui/icon";
import { Panel } from "../../ui/panel";
import { useTitle } from "../../ui/title";
import { lineOf, toYaml } from "../../words/document";
import { Editor, goToLine } from "../submit/editor";
import { Refused } from "../submit/refused";
import { EXAMPLE } from "./example";

type Outcome = { kind: "checked"; study: StudyView } | { kind: "refused"; error: ApiError };

export function CreateStudyPage() {
  useTitle("New study");
  const navigate = useNavigate();
  const area = useRef<HTMLTextAreaElement>(null);
  const result = useId();
  const [text, setText] = useState(EXAMPLE);
  const [busy, setBusy] = useState<"check" | "create" | null>(null);
  const [outcome, setOutcome] = useState<Outcome | null>(null);
  // One key a document: a second click, or a retry after a lost answer, creates the same study and not another one.
  const key = useRef({ text: "", value: "" });

  const send = (dryRun: boolean) => {
    if (key.current.text !== text) key.current = { text, value: newKey() };
    setBusy(dryRun ? "check" : "create");
    createStudy(text, dryRun, key.current.value).then(
      (study) => {
        setBusy(null);
        if (dryRun) setOutcome({ kind: "checked", study });
        else void navigate(`/studies/${study.id}`);
      },
      (thrown: unknown) => {
        setBusy(null);
        setOutcome({ kind: "refused", error: fromThrown(thrown) });
      },
    );
  };
  const wrong = outcome?.kind === "refused" ? outcome.error.fields : [];
  const marked = new Set(wrong.flatMap((error) => lineOf(text, error.field) ?? []));
  const idle = busy === null && text.trim() !== "";

  return (
    <div className="page">
      <div className="page-head">
        <h1>New study</h1>
        <div className="actions">
          <button type="button" className="button" disabled={!idle} onClick={() => send(true)}>
            {busy === "check" ? "Checking…" : "Dry run"}
          </button>
          <button type="button" className="button button-primary" disabled={!idle} onClick={() => send(false)}>
            {busy === "create" ? "Creating…" : "Create"}
          </button>
        </div>
      </div>
      <div className="submit">
        <Panel title="Study document" className="panel-flush">
          <Editor
            ref={area}
            value={text}
            onChange={(next) => {
              setText(next);
              if (outcome?.kind === "checked") setOutcome(null);
            }}
            label="Study document, YAML or JSON"
            marked={marked}
            describedBy={result}
          />
        </Panel>
        <div id={result} className="submit-result" aria-live="polite">
          {outcome === null ? <Help /> : null}
          {outcome?.kind === "checked" ? <Checked study={outcome.study} /> : null}
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

function Help() {
  return (
    <Panel title="What it says">
      <dl className="terms">
        <dt>parameters</dt>
        <dd>
          What is sought, and at which <code>field</code> of the job each value goes.
        </dd>
        <dt>searcher</dt>
        <dd>Who proposes the next trial: random, grid, sobol, tpe, gp, cma_es, evolution, or external.</dd>
        <dt>stopper</dt>
        <dd>How far each trial trains: none, median, successive_halving, hyperband, asha, hyper_drive, or pbt, whose worst trials begin anew from the best ones&apos; checkpoints.</dd>
        <dt>budget</dt>
        <dd>How far a trial trains at most, in epochs or steps.</dd>
        <dt>job</dt>
        <dd>A job document without version, name and labels. Without it trials are trained outside, by ask and tell.</dd>
      </dl>
      <p className="muted">A dry run checks the space, the search and the job at the ends of every range, and creates nothing.</p>
    </Panel>
  );
}

function Checked({ study }: { study: StudyView }) {
  return (
    <Panel title="The document is valid" aside={<Icon name="check" />} className="panel-good">
      <p>Nothing was created. With every default written out, the study is:</p>
      <pre className="document">{toYaml(study.document)}</pre>
    </Panel>
  );
}
