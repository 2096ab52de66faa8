// Rows of the list of studies.
import { Link } from "react-router";
import type { StudyView } from "../../api/types";
import { Chip } from "../../ui/chip";
import { useNow } from "../../ui/now";
import { NONE, count } from "../../words/number";
import { STUDY_PHASES, shownPhase, goalText, metricText, searchText } from "../../words/study";
import { age, instant } from "../../words/time";

export function StudyTable({ studies }: { studies: readonly StudyView[] }) {
  const now = useNow();
  return (
    <div className="table-wrap">
      <table className="table cards">
        <caption className="sr-only">Studies, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Phase</th>
            <th scope="col">Name</th>
            <th scope="col">Goal</th>
            <th scope="col">Trials</th>
            <th scope="col" className="right">
              Best
            </th>
            <th scope="col" className="right">
              Age
            </th>
          </tr>
        </thead>
        <tbody>
          {studies.map((study) => (
            <tr key={study.id}>
              <td>
                <Chip {...shownPhase(study)} />
              </td>
              <th scope="row">
                <Link to={`/studies/${study.id}`} className="job-link">
                  {study.name}
                </Link>
              </th>
              <td data-label="Goal">
                {goalText(study.document.search.objectives)}
                <p className="note">{searchText(study.document.search)}</p>
              </td>
              <td data-label="Trials">
                <TrialBar study={study} />
              </td>
              <td className="right num" data-label="Best">
                {bestText(study)}
              </td>
              <td
                className="right num"
                data-label="Age"
                title={`Created ${instant(study.created_at)} by ${study.created_by}`}
              >
                {age(study.created_at, now)}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Shows the number of finished trials and their limit. A finished search may have needed fewer. */
export function TrialBar({ study: { trials, phase } }: { study: StudyView }) {
  const done = trials.completed + trials.stopped + trials.failed;
  const share = phase === "finished" ? 1 : trials.limit === 0 ? 0 : Math.min(1, done / trials.limit);
  const text = `${count(done)} of ${count(trials.limit)} done, ${count(trials.running)} running, ${count(trials.waiting)} waiting to continue, ${count(trials.failed)} failed`;
  return (
    <div className="progress" data-phase={STUDY_PHASES[phase].like} title={text}>
      <div
        className="progress-track"
        role="progressbar"
        aria-valuemin={0}
        aria-valuemax={trials.limit}
        aria-valuenow={done}
        aria-label="Trials done"
        aria-valuetext={text}
      >
        <div className="progress-fill" style={{ width: `${share * 100}%` }} />
      </div>
      <span className="progress-text num">
        {count(done)}
        <span className="muted"> / {count(trials.limit)}</span>
      </span>
    </div>
  );
}

/** Returns the best value; with several objectives the size of the Pareto front. */
export function bestText(study: StudyView): string {
  const { objectives } = study.document.search;
  const [first] = objectives;
  const [best] = study.best;
  if (first === undefined || best === undefined) return NONE;
  if (objectives.length > 1) return `front of ${count(study.trials.best)}`;
  return metricText(first.metric, best.outcome?.values[0]);
}
