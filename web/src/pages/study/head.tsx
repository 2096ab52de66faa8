// Head of the study page: objectives, progress, best trial and verbs.
import { useState } from "react";
import { Link } from "react-router";
import { checkpointFile } from "../../api/calls";
import { actOnStudy, exportStudy, type StudyVerb } from "../../api/studies";
import type { BestTrial, StudyView } from "../../api/types";
import { Chip } from "../../ui/chip";
import { Confirm, type Question } from "../../ui/confirm";
import { FileButton } from "../../ui/file-button";
import { Icon, type IconName } from "../../ui/icon";
import { useNow } from "../../ui/now";
import { bytes, count } from "../../words/number";
import {
  shownPhase,
  beginsFromTrials,
  budgetText,
  goalText,
  isOver,
  metricText,
  parameterText,
  searchText,
} from "../../words/study";
import { duration, instant } from "../../words/time";
import { TrialBar, bestText } from "../studies/table";
import { Extend } from "./extend";

const MODEL = "model.safetensors";

interface Props {
  study: StudyView;
  best: BestTrial | null;
  onChanged: () => void;
  onDeleted: () => void;
}

export function StudyHead({ study, best, onChanged, onDeleted }: Props) {
  const [asked, setAsked] = useState<Question | null>(null);
  const [extending, setExtending] = useState(false);
  const ask = (verb: StudyVerb) => {
    setAsked({
      ...QUESTIONS[verb](study.name),
      act: async () => {
        await actOnStudy(study.id, verb);
        setAsked(null);
        if (verb === "delete") onDeleted();
        else onChanged();
      },
    });
  };
  const over = isOver(study.phase);
  return (
    <header className="job-head">
      <nav className="crumbs" aria-label="Where you are">
        <Link to="/studies">Studies</Link>
        <Icon name="right" />
        <span className="mono muted" title="The study's id">
          {study.id}
        </span>
      </nav>
      <div className="page-head">
        <div className="job-title">
          <h1>{study.name}</h1>
          <Chip {...shownPhase(study)} />
          {Object.entries(study.labels).map(([key, value]) => (
            <span key={key} className="label">
              {key}={value}
            </span>
          ))}
        </div>
        <div className="actions">
          {study.phase === "paused" ? (
            <VerbButton verb="resume" icon="resume" onAsk={ask} />
          ) : over ? null : (
            <VerbButton verb="pause" icon="pause" onAsk={ask} />
          )}
          <FileButton
            load={() => exportStudy(study.id, "csv")}
            name={`${study.name}.csv`}
            title="All trials as a table (CSV)"
          >
            Export
          </FileButton>
          {study.phase === "cancelled" ? null : (
            <button type="button" className="button" onClick={() => setExtending(true)}>
              <Icon name="submit" /> Extend
            </button>
          )}
          {over ? (
            <VerbButton verb="delete" icon="delete" onAsk={ask} />
          ) : (
            <VerbButton verb="cancel" icon="cancel" onAsk={ask} />
          )}
        </div>
      </div>
      <p className="study-goal">
        {goalText(study.document.search.objectives)}
        <span className="muted"> by {searchText(study.document.search)}</span>
      </p>
      <Facts study={study} />
      <Best study={study} best={best} />
      {asked === null ? null : <Confirm question={asked} onClose={() => setAsked(null)} />}
      {extending ? <Extend study={study} onDone={onChanged} onClose={() => setExtending(false)} /> : null}
    </header>
  );
}

function VerbButton({ verb, icon, onAsk }: { verb: StudyVerb; icon: IconName; onAsk: (verb: StudyVerb) => void }) {
  return (
    <button type="button" className="button" onClick={() => onAsk(verb)}>
      <Icon name={icon} /> {verb.charAt(0).toUpperCase() + verb.slice(1)}
    </button>
  );
}

type Asked = (name: string) => Omit<Question, "act">;

const QUESTIONS: Record<StudyVerb, Asked> = {
  pause: (name) => ({
    title: `Pause ${name}?`,
    text: "Nothing new starts. What trains, trains to the end of its rung.",
    verb: "Pause",
    danger: false,
  }),
  resume: (name) => ({
    title: `Resume ${name}?`,
    text: "It creates trials again, and waiting trials may continue.",
    verb: "Resume",
    danger: false,
  }),
  cancel: (name) => ({
    title: `Cancel ${name}?`,
    text: "All its trials stop, and the study cannot be resumed. What they measured and their checkpoints stay.",
    verb: "Cancel the study",
    danger: true,
  }),
  delete: (name) => ({
    title: `Delete ${name}?`,
    text: "It disappears from the lists, and its trials' jobs with it. Their checkpoints and models are erased within minutes, once no open job begins from them.",
    verb: "Delete",
    danger: true,
  }),
};

function Facts({ study }: { study: StudyView }) {
  const now = useNow();
  const { trials } = study;
  const took = (Date.parse(study.finished_at ?? new Date(now).toISOString()) - Date.parse(study.created_at)) / 1000;
  return (
    <dl className="facts">
      <div className="fact fact-wide">
        <dt>Trials</dt>
        <dd>
          <TrialBar study={study} />
        </dd>
      </div>
      <Fact name="Best" value={bestText(study)} />
      <Fact name="Running" value={count(trials.running)} />
      <Fact name="Waiting" value={count(trials.waiting)} title="Have completed a rung and may continue later" />
      <Fact name="Stopped" value={count(trials.stopped)} title="Ended early by the stopper" />
      <Fact name="Failed" value={count(trials.failed)} />
      <Fact
        name={study.finished_at === null ? "Since" : "Took"}
        value={duration(took)}
        title={`Created ${instant(study.created_at)} by ${study.created_by}`}
      />
    </dl>
  );
}

function Fact({ name, value, title }: { name: string; value: string; title?: string }) {
  return (
    <div className="fact" title={title}>
      <dt>{name}</dt>
      <dd className="num">{value}</dd>
    </div>
  );
}

/** Shows the best trial with its model; of a Pareto front, which is shown below, only its size. */
function Best({ study, best }: { study: StudyView; best: BestTrial | null }) {
  const { search } = study.document;
  const [objective] = search.objectives;
  if (best === null || objective === undefined || search.objectives.length > 1) return null;
  const { trial, checkpoint } = best;
  return (
    <section className="best" aria-label="The best trial">
      <div>
        <p className="best-title">
          Best: <TrialLink number={trial.number} jobId={trial.job_id} />, {objective.metric}{" "}
          {metricText(objective.metric, trial.outcome?.values[0])}
          {trial.outcome === null ? null : (
            <span className="muted"> after {budgetText(search, trial.outcome.step)}</span>
          )}
        </p>
        <p className="best-parameters">
          {Object.entries<unknown>(trial.parameters).map(([name, value]) => (
            <span key={name} className="label">
              {name} {parameterText(value)}
            </span>
          ))}
        </p>
      </div>
      {trial.job_id === null ? null : (
        <div className="actions">
          {checkpoint === null ? null : <ModelButton study={study} jobId={trial.job_id} checkpoint={checkpoint} />}
          {checkpoint === null || !beginsFromTrials(study) ? null : (
            <Link
              className="button"
              to={`/submit?from=${trial.job_id}&step=${checkpoint.step}`}
              title="Train this trial on as a job of its own"
            >
              <Icon name="submit" /> Continue as a job
            </Link>
          )}
          <Link
            className="button"
            to={`/jobs/${trial.job_id}?tab=checkpoints`}
            title={checkpoint === null ? "The job's checkpoints" : checkpoint.path}
          >
            All checkpoints
          </Link>
        </div>
      )}
    </section>
  );
}

/**
 * Downloads the checkpoint's model as a file. For a checkpoint without such a file, as of a
 * command, the other button leads to its files.
 */
function ModelButton({
  study,
  jobId,
  checkpoint,
}: {
  study: StudyView;
  jobId: string;
  checkpoint: NonNullable<BestTrial["checkpoint"]>;
}) {
  if (checkpoint.files?.includes(MODEL) !== true) return null;
  const load = () => checkpointFile(jobId, checkpoint.step, MODEL);
  return (
    <FileButton
      load={load}
      name={`${study.name}-best-step-${checkpoint.step}.safetensors`}
      title={`The model as it was after step ${count(checkpoint.step)} (${bytes(checkpoint.bytes)} with its optimizer)`}
    >
      Model
    </FileButton>
  );
}

export function TrialLink({ number, jobId }: { number: number; jobId: string | null }) {
  return jobId === null ? <>trial {number}</> : <Link to={`/jobs/${jobId}`}>trial {number}</Link>;
}
