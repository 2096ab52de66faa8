// How much each parameter matters, computed in the page, with its method and how far it can be trusted.
import { useEffect, useMemo, useRef, useState } from "react";
import type { StudySearch, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { percent } from "../../words/number";
import { budgetText } from "../../words/study";
import { importance, type Importance } from "./forest";
import { comparable } from "./results";
import { parametersOf, placeOn, type Axis } from "./space";

/** Fewer trials would give numbers that the next one overturns. */
const ENOUGH = 12;
/** A sample of this size says as much, and takes a tenth of a second. */
const AT_MOST = 600;
/** Below this share of explained variance a reader is warned. */
const TRUSTED = 0.2;

export function ImportancePanel({ search, axes, objective, trials }: { search: StudySearch; axes: readonly Axis[]; objective: number; trials: readonly TrialView[] }) {
  const { values, step } = useMemo(() => comparable(trials, objective), [trials, objective]);
  const found = useImportance(trials, axes, values, `${objective} ${values.size}`);
  const metric = search.objectives[objective]?.metric ?? "";
  const bars = axes.map((axis, index) => ({ name: axis.name, share: found?.features[index] ?? 0 })).sort((a, b) => b.share - a.share);
  const widest = Math.max(...bars.map((bar) => bar.share), 1e-9);
  return (
    <Panel title="Importance of parameters">
      {values.size < ENOUGH ? (
        <Empty title="Too few trials to tell">
          {values.size} of at least {ENOUGH} have a value.
        </Empty>
      ) : found === null ? (
        <Empty title="Nothing to tell apart">All trials have the same value so far.</Empty>
      ) : (
        <>
          <ul className="importance">
            {bars.map(({ name, share }) => (
              <li key={name}>
                <span className="importance-name" title={name}>
                  {name}
                </span>
                <span className="importance-track" aria-hidden="true">
                  <span style={{ width: `${(Math.max(0, share) / widest) * 100}%` }} />
                </span>
                <span className="num">{Math.max(0, share).toFixed(2)}</span>
              </li>
            ))}
          </ul>
          <p className="chart-note">
            Permutation importance: how much worse a forest of random trees predicts a trial's rank by {metric}
            {step === null ? "" : ` after ${budgetText(search, step)}`} when this parameter is shuffled, as a share of the ranks' variance, on trials that a tree has not seen. The
            forest explains {percent(Math.max(0, found.explained), 0)} of it{found.explained < TRUSTED ? ": too little to trust the bars." : "."}
          </p>
        </>
      )}
    </Panel>
  );
}

/** Computed after the page is drawn, and anew when more trials have a value, not with every answer of the api. */
function useImportance(trials: readonly TrialView[], axes: readonly Axis[], values: ReadonlyMap<number, number>, key: string): Importance | null {
  const [found, setFound] = useState<Importance | null>(null);
  const done = useRef("");
  useEffect(() => {
    if (done.current === key) return undefined;
    const timer = setTimeout(() => {
      done.current = key;
      setFound(values.size < ENOUGH ? null : computed(trials, axes, values));
    });
    return () => clearTimeout(timer);
  }, [trials, axes, values, key]);
  return found;
}

function computed(trials: readonly TrialView[], axes: readonly Axis[], values: ReadonlyMap<number, number>): Importance | null {
  const valued = trials.filter((trial) => values.has(trial.number));
  const every = Math.ceil(valued.length / AT_MOST);
  const kept = valued.filter((_, index) => index % every === 0);
  // A parameter that a trial does not have lies below all values, where a cut can part it from them.
  const rows = kept.map((trial) => axes.map((axis) => placeOn(axis, parametersOf(trial)[axis.name]) ?? -0.5));
  return importance(rows, ranksOf(kept.map((trial) => values.get(trial.number) ?? 0)));
}

/** Ranks and not values, because one diverged training would outweigh all others. */
function ranksOf(values: readonly number[]): number[] {
  const ascending = [...values].sort((a, b) => a - b);
  return values.map((value) => (ascending.indexOf(value) + ascending.lastIndexOf(value)) / 2);
}
