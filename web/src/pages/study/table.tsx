// All trials, or those selected by brushes, in the chosen order.
import { useMemo, useState } from "react";
import { Link } from "react-router";
import type { StudySearch, TrialView } from "../../api/types";
import { Chip } from "../../ui/chip";
import { Icon } from "../../ui/icon";
import { Empty } from "../../ui/states";
import { count, plural } from "../../words/number";
import { TRIAL_STATES, budgetText, metricText, parameterText } from "../../words/study";
import type { Hover } from "./hover";
import { valueOf } from "./results";
import { sorted, type Order } from "./sort";
import { parametersOf } from "./space";

const PER_PAGE = 100;

interface Props {
  search: StudySearch;
  /** Whether a job can begin from a trial's checkpoint. */
  forks: boolean;
  trials: readonly TrialView[];
  hover: Hover;
}

export function TrialTable({ search, forks, trials, hover }: Props) {
  const [first] = search.objectives;
  const [order, setOrder] = useState<Order>({
    by: search.objectives.length === 1 ? "value:0" : "number",
    descending: first?.goal === "maximize" && search.objectives.length === 1,
  });
  const [wanted, setWanted] = useState(0);
  const ordered = useMemo(() => sorted(trials, order), [trials, order]);
  const pages = Math.ceil(ordered.length / PER_PAGE);
  const page = Math.min(wanted, Math.max(0, pages - 1));
  const choose = (by: string, bestDescends: boolean) => {
    setWanted(0);
    setOrder((before) => ({ by, descending: before.by === by ? !before.descending : bestDescends }));
  };
  const head = (by: string, text: string, bestDescends = false, right = false) => (
    <Head key={by} by={by} text={text} order={order} right={right} onChoose={() => choose(by, bestDescends)} />
  );
  if (trials.length === 0) return <Empty title="No trial is left">Clear a brush to see more.</Empty>;
  return (
    <>
      <div className="table-wrap">
        <table className="table trials">
          <caption className="sr-only">Trials</caption>
          <thead>
            <tr>
              {head("number", "Trial")}
              {head("state", "State")}
              {head("rung", "Rung", true, true)}
              {search.objectives.map(({ metric, goal }, index) =>
                head(`value:${index}`, metric, goal === "maximize", true),
              )}
              {search.parameters.map(({ name }) => head(`parameter:${name}`, name, false, true))}
              {forks ? (
                <th scope="col">
                  <span className="sr-only">Continue</span>
                </th>
              ) : null}
            </tr>
          </thead>
          <tbody>
            {ordered.slice(page * PER_PAGE, (page + 1) * PER_PAGE).map((trial) => (
              <Row
                key={trial.number}
                search={search}
                forks={forks}
                trial={trial}
                lit={hover.number === trial.number}
                onHover={hover.set}
              />
            ))}
          </tbody>
        </table>
      </div>
      {pages > 1 ? (
        <nav className="pager" aria-label="Pages of trials">
          <span className="muted num">
            {count(page * PER_PAGE + 1)} to {count(Math.min(ordered.length, (page + 1) * PER_PAGE))} of{" "}
            {plural(ordered.length, "trial")}
          </span>
          <button
            type="button"
            className="button button-small"
            disabled={page === 0}
            onClick={() => setWanted(page - 1)}
            aria-label="Page before"
          >
            <Icon name="left" />
          </button>
          <button
            type="button"
            className="button button-small"
            disabled={page === pages - 1}
            onClick={() => setWanted(page + 1)}
            aria-label="Next page"
          >
            <Icon name="right" />
          </button>
        </nav>
      ) : null}
    </>
  );
}

function Head({
  by,
  text,
  order,
  right,
  onChoose,
}: {
  by: string;
  text: string;
  order: Order;
  right: boolean;
  onChoose: () => void;
}) {
  const chosen = order.by === by;
  return (
    <th
      scope="col"
      className={right ? "right" : ""}
      aria-sort={chosen ? (order.descending ? "descending" : "ascending") : "none"}
    >
      <button type="button" className="sort" onClick={onChoose}>
        {text}
        <span aria-hidden="true">{chosen ? (order.descending ? " ↓" : " ↑") : ""}</span>
      </button>
    </th>
  );
}

interface RowProps extends Omit<Props, "trials" | "hover"> {
  trial: TrialView;
  lit: boolean;
  onHover: (number: number | null) => void;
}

function Row({ search, forks, trial, lit, onHover }: RowProps) {
  const given = parametersOf(trial);
  return (
    // Focus on a link also highlights the trial in the charts, for users without a pointer.
    <tr
      data-lit={lit}
      onPointerEnter={() => onHover(trial.number)}
      onPointerLeave={() => onHover(null)}
      onFocus={() => onHover(trial.number)}
      onBlur={() => onHover(null)}
    >
      <th scope="row" className="num">
        {trial.job_id === null ? trial.number : <Link to={`/jobs/${trial.job_id}`}>{trial.number}</Link>}
        {trial.from === null ? null : (
          <span
            className="label"
            title={`It took over trial ${trial.from.trial} as it was after ${budgetText(search, trial.from.step)}`}
          >
            from {trial.from.trial}
          </span>
        )}
        {trial.best ? <span className="label trial-best">best</span> : null}
      </th>
      <td>
        <Chip word={trial.state} {...TRIAL_STATES[trial.state]} />
        {trial.failure === null ? null : <p className="note note-bad">{trial.failure}</p>}
      </td>
      <td
        className="right num"
        title={`Told to train ${budgetText(search, trial.budget)}${trial.outcome === null ? "" : `, measured after ${budgetText(search, trial.outcome.step)}`}`}
      >
        {trial.rung}
      </td>
      {search.objectives.map(({ metric }, index) => (
        <td key={metric} className="right num">
          {metricText(metric, valueOf(trial, index))}
        </td>
      ))}
      {search.parameters.map(({ name }) => (
        <td key={name} className="right num">
          {parameterText(given[name])}
        </td>
      ))}
      {forks ? (
        <td className="right">
          {trial.job_id === null || trial.outcome === null ? null : (
            <Link
              to={`/submit?from=${trial.job_id}`}
              title="Begin a job of its own from this trial's newest checkpoint"
            >
              Continue<span className="sr-only"> trial {trial.number} as a job</span>
            </Link>
          )}
        </td>
      ) : null}
    </tr>
  );
}
