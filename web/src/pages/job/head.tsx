// Head of the job page: identity, progress and verbs.
import { batch } from "../../charts/curves";
import { useState } from "react";
import { Link } from "react-router";
import { act, type Verb } from "../../api/calls";
import type { JobView } from "../../api/types";
import { isTerminal } from "../../live/job";
import { Confirm, type Question } from "../../ui/confirm";
import { Icon, type IconName } from "../../ui/icon";
import { useNow } from "../../ui/now";
import { PhaseChip, canCancel, canContinue, canDelete, canEdit, canPause, canResume, canSuspend } from "../../ui/phase";
import { ProgressBar } from "../../ui/progress";
import { dataText, modelText } from "../../words/engine";
import { dates, range, unforeseenSentence } from "../../words/forecast";
import { idleText } from "../../words/idle";
import { NONE, loss, percent, rate } from "../../words/number";
import { age, duration, instant } from "../../words/time";
import { Command } from "./command";
import { Edit } from "./edit";

interface Props {
  job: JobView;
  onChanged: () => void;
  onDeleted: () => void;
}

export function JobHead({ job, onChanged, onDeleted }: Props) {
  const [asked, setAsked] = useState<Question | null>(null);
  const [editing, setEditing] = useState(false);
  const ask = (verb: Verb) => {
    setAsked({
      ...QUESTIONS[verb](job.name),
      act: async () => {
        await act(job.id, verb);
        setAsked(null);
        if (verb === "delete") onDeleted();
        else onChanged();
      },
    });
  };
  return (
    <header className="job-head">
      <nav className="crumbs" aria-label="Where you are">
        <Link to="/jobs">Jobs</Link>
        <Icon name="right" />
        <span className="mono muted" title="The job's id">
          {job.id}
        </span>
        {job.trial === null ? null : (
          <Link to={`/studies/${job.trial.study_id}`} className="label" title="The study whose trial this job is">
            trial {job.trial.number} of its study{job.trial.state === "waiting" ? ", between rungs" : ""}
          </Link>
        )}
      </nav>
      <div className="page-head">
        <div className="job-title">
          <h1>{job.name}</h1>
          <PhaseChip phase={job.phase} intent={job.intent} />
          {job.priority === 0 && !job.priority_class ? null : (
            <span className="label" title="Jobs of a higher priority come first">
              priority {job.priority}
              {job.priority_class ? ` (${job.priority_class})` : ""}
            </span>
          )}
          {Object.entries(job.labels).map(([key, value]) => (
            <span key={key} className="label">
              {key}={value}
            </span>
          ))}
        </div>
        <div className="actions">
          {canSuspend(job) ? <VerbButton verb="suspend" icon="pause" onAsk={ask} /> : null}
          {canContinue(job) ? <VerbButton verb="continue" icon="resume" onAsk={ask} /> : null}
          {canPause(job) ? <VerbButton verb="pause" icon="pause" onAsk={ask} /> : null}
          {canResume(job) ? <VerbButton verb="resume" icon="resume" onAsk={ask} /> : null}
          {canEdit(job) ? (
            <button type="button" className="button" onClick={() => setEditing(true)}>
              <Icon name="submit" /> Change
            </button>
          ) : null}
          {canCancel(job) ? <VerbButton verb="cancel" icon="cancel" onAsk={ask} /> : null}
          {job.resume_step === null ? null : (
            <Link className="button" to={`/submit?from=${job.id}`} title="Begin a new job from its newest checkpoint">
              <Icon name="submit" /> Fork
            </Link>
          )}
          {isTerminal(job.phase) && job.trial === null ? (
            <Link className="button" to={`/submit?again=${job.id}`} title="Begin a new job with this one's document">
              <Icon name="submit" /> Submit again
            </Link>
          ) : null}
          {canDelete(job) ? <VerbButton verb="delete" icon="delete" onAsk={ask} /> : null}
        </div>
      </div>
      {job.spec.from === undefined || job.spec.from === null ? null : (
        <p className="muted">
          Began from <Link to={`/jobs/${job.spec.from.job}`}>another job</Link>
          {typeof job.spec.from.step === "number" ? ` as it was after step ${job.spec.from.step}` : ""}.
        </p>
      )}
      {job.idle === undefined || job.idle === null ? null : <p className="note note-bad">{idleText(job.idle)}</p>}
      <Facts job={job} />
      {asked === null ? null : <Confirm question={asked} onClose={() => setAsked(null)} />}
      {editing ? <Edit job={job} onDone={onChanged} onClose={() => setEditing(false)} /> : null}
    </header>
  );
}

function VerbButton({ verb, icon, onAsk }: { verb: Verb; icon: IconName; onAsk: (verb: Verb) => void }) {
  return (
    <button type="button" className="button" onClick={() => onAsk(verb)}>
      <Icon name={icon} /> {verb.charAt(0).toUpperCase() + verb.slice(1)}
    </button>
  );
}

type Asked = (name: string) => Omit<Question, "act">;

const QUESTIONS: Record<Verb, Asked> = {
  suspend: (name) => ({
    title: `Suspend ${name}?`,
    text: "Its workers are suspended and keep their memory. Other jobs use its GPUs until you continue it.",
    verb: "Suspend",
    danger: false,
  }),
  continue: (name) => ({
    title: `Continue ${name}?`,
    text: "It resumes where it was suspended, once its GPUs are free.",
    verb: "Continue",
    danger: false,
  }),
  pause: (name) => ({
    title: `Pause ${name}?`,
    text: "It writes a checkpoint and releases what it holds. It continues from there when you resume it.",
    verb: "Pause",
    danger: false,
  }),
  resume: (name) => ({
    title: `Resume ${name}?`,
    text: "It goes back to the queue and on from its newest checkpoint.",
    verb: "Resume",
    danger: false,
  }),
  cancel: (name) => ({
    title: `Cancel ${name}?`,
    text: "It stops for good and cannot be resumed. Its checkpoints, logs and curves stay.",
    verb: "Cancel the job",
    danger: true,
  }),
  delete: (name) => ({
    title: `Delete ${name}?`,
    text: "It disappears from the lists, with its curves, logs and events. Its checkpoints and models are erased within minutes, once no open job begins from them.",
    verb: "Delete",
    danger: true,
  }),
};

function Facts({ job }: { job: JobView }) {
  const now = useNow();
  const { progress } = job;
  const ended = isTerminal(job.phase);
  const ran =
    job.started_at === null
      ? null
      : (Date.parse(job.finished_at ?? new Date(now).toISOString()) - Date.parse(job.started_at)) / 1000;
  return (
    <dl className="facts">
      <div className="fact fact-wide">
        <dt>Steps</dt>
        <dd>
          <ProgressBar progress={progress} phase={job.phase} />
        </dd>
      </div>
      <Measures job={job} />
      <Fact
        name="Workers"
        value={sizeText(job.workers, ended)}
        title="Running now, and the range in which the scheduler may choose"
      />
      {job.ps_shards.max === 0 ? null : (
        <Fact
          name="PS shards"
          value={sizeText(job.ps_shards, ended)}
          title="Running now, and the range in which the scheduler may choose"
        />
      )}
      {job.forecast?.start ? (
        <Fact name="Starts in" value={range(job.forecast.start, now)} title={dates(job.forecast.start)} />
      ) : null}
      {ended ? null : job.forecast?.finish ? (
        <Fact name="Ends in" value={range(job.forecast.finish, now)} title={dates(job.forecast.finish)} />
      ) : (
        <Fact
          name="Ends in"
          value={job.phase === "running" ? duration(progress?.eta_s) : NONE}
          {...(job.forecast?.unforeseen
            ? { title: `Unknown: ${unforeseenSentence(job.forecast.unforeseen) ?? ""}` }
            : {})}
        />
      )}
      <Fact
        name={ended ? "Took" : "Since start"}
        value={duration(ran)}
        {...(job.started_at === null ? {} : { title: `Started ${instant(job.started_at)}` })}
      />
      {job.spec.engine ? <Fact name="Model" value={modelText(job.spec.engine.model)} /> : null}
      {job.spec.engine ? <Fact name="Data" value={dataText(job.spec.engine.dataset)} /> : null}
      <Fact
        name="Submitted"
        value={`${age(job.submitted_at, now)} ago`}
        title={`${instant(job.submitted_at)} by ${job.submitted_by}`}
      />
      <Fact
        name="Revision"
        value={String(job.revision)}
        title="How often it was started, each time with a new set of tasks"
      />
      {job.failures > 0 ? (
        <Fact name="Failures" value={String(job.failures)} title="Restarts charged to its retries" />
      ) : null}
      {job.spec.command ? <Command name={job.name} command={job.spec.command} /> : null}
    </dl>
  );
}

/**
 * Shows measures. The built-in engine measures everything; of a command only the logged values are
 * shown.
 */
function Measures({ job }: { job: JobView }) {
  const { progress } = job;
  const split = progress?.evaluated_on === "validation" ? "Val" : "Test";
  const examples = job.phase === "running" ? progress?.examples_per_s : null;
  const all: [string, string][] = [
    ["Train loss", loss(progress?.loss)],
    ["Train accuracy", percent(progress?.accuracy, 2)],
    [`${split} loss`, loss(progress?.test_loss)],
    [`${split} accuracy`, percent(progress?.test_accuracy, 2)],
    ["Epoch", progress?.epoch?.toFixed(2) ?? NONE],
    ["Examples/s", examples === null || examples === undefined ? NONE : rate(examples)],
  ];
  const update = updateWorth(job);
  if (update !== null) all.push(["Update", update]);
  const shown = job.spec.command ? all.filter(([, value]) => value !== NONE) : all;
  return shown.map(([name, value]) => <Fact key={name} name={name} value={value} />);
}

/** Returns the examples of an update of a changing batch, and the steps that it is worth. */
function updateWorth({ spec, progress }: JobView): string | null {
  if (progress?.gain == null || spec.engine == null) return null;
  const examples = batch(progress);
  if (examples === null) return null;
  const efficiency = Math.min(1, (progress.gain * spec.engine.batch) / examples);
  return `${examples.toFixed(0)} examples, worth ${progress.gain.toFixed(1)} steps (${percent(efficiency, 0)})`;
}

function sizeText(size: JobView["workers"], ended: boolean): string {
  const range = size.min === size.max ? `${size.min}` : `${size.min}–${size.max}`;
  return ended ? range : `${size.running} of ${range}`;
}

function Fact({ name, value, title }: { name: string; value: string; title?: string }) {
  return (
    <div className="fact" title={title}>
      <dt>{name}</dt>
      <dd className="num">{value}</dd>
    </div>
  );
}
