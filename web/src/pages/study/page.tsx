// One study: objectives, learning curves, and importance of parameters.
import { useMemo, useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { CURVES_AT_MOST } from "../../api/studies";
import type { StudyView, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty, Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { toYaml } from "../../words/document";
import { count, plural } from "../../words/number";
import { beginsFromTrials } from "../../words/study";
import { Choice } from "./controls";
import { LearningCurves } from "./curves";
import { Explorer } from "./explorer";
import { StudyHead } from "./head";
import { History } from "./history";
import type { Hover } from "./hover";
import { useStudyData } from "./load";
import { Pareto } from "./pareto";
import type { Trials } from "./trials";

export function StudyPage() {
  const { id = "" } = useParams();
  return <OneStudy key={id} id={id} />;
}

function OneStudy({ id }: { id: string }) {
  const data = useStudyData(id);
  const [deleted, setDeleted] = useState(false);
  const { study, trials } = data;
  useTitle(study.data === null ? "Study" : study.data.name);
  if (deleted || data.gone) {
    // A user that has seen the study had access to it.
    const meanwhile = study.data !== null;
    return (
      <Empty title={deleted ? "The study is deleted" : meanwhile ? "The study was deleted" : "There is no such study"}>
        <p>
          {deleted
            ? ""
            : meanwhile
              ? "It was deleted while this page was open. "
              : "It may have been deleted, or belong to another tenant. "}
          Back to the <Link to="/studies">list of studies</Link>.
        </p>
      </Empty>
    );
  }
  if (study.data === null)
    return study.error === null ? (
      <Loading label="Loading the study" rows={8} />
    ) : (
      <Failure error={study.error} retry={study.reload} />
    );
  return (
    <div className="page">
      <StudyHead
        study={study.data}
        best={data.best.data ?? null}
        onChanged={data.reload}
        onDeleted={() => setDeleted(true)}
      />
      {study.error === null ? null : <Failure error={study.error} retry={data.reload} />}
      {trials.error === null ? null : <Failure error={trials.error} retry={trials.reload} />}
      {trials.data === null && trials.part.length === 0 ? (
        trials.error === null ? (
          <Loading label="Loading the trials" rows={8} />
        ) : null
      ) : (
        <>
          <Shown study={study.data} trials={trials} />
          <Body study={study.data} trials={trials.data ?? trials.part} />
        </>
      )}
    </div>
  );
}

/** Shows how many of the trials are loaded: a large study is loaded page by page. */
function Shown({ study, trials }: { study: StudyView; trials: Trials }) {
  const shown = (trials.data ?? trials.part).length;
  const all = Math.max(study.trials.created, shown);
  if (all === 0) return null;
  const coming = trials.data === null && trials.error === null;
  return (
    <div className="shown">
      <p role={coming ? "status" : undefined}>
        Showing {count(shown)} of {plural(all, "trial")}
        {coming ? "; the others are being loaded" : ""}
        {shown > CURVES_AT_MOST
          ? `; of those after the first ${count(CURVES_AT_MOST)} only the ends of rungs, not the whole curves`
          : ""}
        .
      </p>
      {coming ? <progress max={all} value={trials.loaded} aria-label="Trials loaded" /> : null}
    </div>
  );
}

function Body({ study, trials }: { study: StudyView; trials: readonly TrialView[] }) {
  const { search } = study.document;
  const [number, setNumber] = useState<number | null>(null);
  const [objective, setObjective] = useState(0);
  const navigate = useNavigate();
  const jobId = number === null ? null : (trials.find((trial) => trial.number === number)?.job_id ?? null);
  const hover = useMemo<Hover>(
    () => ({
      number,
      set: setNumber,
      open: () => {
        if (jobId !== null) void navigate(`/jobs/${jobId}`);
      },
    }),
    [number, jobId, navigate],
  );
  if (trials.length === 0) return <Empty title="No trials yet">{waitingFor(study)}</Empty>;
  const names = search.objectives.map((one) => one.metric);
  return (
    <>
      {names.length > 1 ? (
        <div className="chart-tools">
          <span className="muted">Charts show</span>
          <Choice label="Objective" value={objective} options={names} onChange={setObjective} />
        </div>
      ) : null}
      <LearningCurves search={search} objective={objective} trials={trials} hover={hover} />
      <div className="study-charts">
        <History search={search} objective={objective} trials={trials} hover={hover} />
        {names.length > 1 ? <Pareto search={search} trials={trials} hover={hover} /> : null}
      </div>
      <Explorer search={search} forks={beginsFromTrials(study)} objective={objective} trials={trials} hover={hover} />
      <Panel title="Study document" className="panel-flush">
        {study.trials.limit === search.trials ? null : (
          <p className="muted">
            As it was created, with {plural(search.trials, "trial")}; extended since to {count(study.trials.limit)}.
          </p>
        )}
        <pre className="document">{toYaml(study.document)}</pre>
      </Panel>
    </>
  );
}

function waitingFor(study: StudyView): string {
  if (study.phase === "paused") return "The study is paused; resume it to create trials.";
  if (study.phase === "cancelled") return "The study was cancelled before its first trial.";
  if (study.document.job === null || study.document.job === undefined)
    return "They are trained outside: a program asks for them.";
  return "The scheduler creates the first ones within a moment.";
}
