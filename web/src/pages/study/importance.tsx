// Importance of each parameter, computed in the page, with its method and reliability.
import { useEffect, useMemo, useState } from "react";
import type { StudySearch, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty, Loading } from "../../ui/states";
import { percent, plural } from "../../words/number";
import { budgetText } from "../../words/study";
import { importance, type Importance } from "./forest";
import { comparable } from "./results";
import { parametersOf, placeOn, type Axis } from "./space";

/** With fewer trials the next one would change the result. */
const ENOUGH = 12;
/** Maximum sample size; it is sufficient and takes a tenth of a second. */
const AT_MOST = 600;
/** Share of explained variance below which the page warns. */
const TRUSTED = 0.2;

interface Props {
  search: StudySearch;
  axes: readonly Axis[];
  objective: number;
  trials: readonly TrialView[];
}

/** Result and the values of its computation, which are always shown together. */
interface Computed {
  key: string;
  objective: number;
  trials: number;
  step: number | null;
  /** Null if all values are equal. */
  found: Importance | null;
}

export function ImportancePanel({ search, axes, objective, trials }: Props) {
  const { values, step } = useMemo(() => comparable(trials, objective), [trials, objective]);
  const computed = useComputed(trials, axes, objective, values, step);
  return (
    <Panel title="Importance of parameters">
      {values.size < ENOUGH ? (
        <Empty title="Too few trials to tell">
          {values.size} of at least {ENOUGH} have a value.
        </Empty>
      ) : computed === null ? (
        <Loading label="Computing" rows={Math.min(6, axes.length)} />
      ) : computed.found === null ? (
        <Empty title="Nothing to tell apart">All trials have the same value so far.</Empty>
      ) : (
        <Bars search={search} axes={axes} computed={computed} found={computed.found} />
      )}
    </Panel>
  );
}

function Bars({
  search,
  axes,
  computed,
  found,
}: {
  search: StudySearch;
  axes: readonly Axis[];
  computed: Computed;
  found: Importance;
}) {
  const bars = axes
    .map((axis, index) => ({ name: axis.name, share: found.features[index] ?? 0 }))
    .sort((a, b) => b.share - a.share);
  const widest = Math.max(...bars.map((bar) => bar.share), 1e-9);
  const metric = search.objectives[computed.objective]?.metric ?? "";
  return (
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
        Permutation importance of {plural(computed.trials, "trial")}: how much worse a forest of random trees predicts a
        trial&apos;s rank by {metric}
        {computed.step === null ? "" : ` after ${budgetText(search, computed.step)}`} when this parameter is shuffled,
        as a share of the ranks&apos; variance, on trials that a tree has not seen. The forest explains{" "}
        {percent(Math.max(0, found.explained), 0)} of it
        {found.explained < TRUSTED ? ": too little to trust the bars." : "."}
      </p>
    </>
  );
}

/**
 * Computes after the page is drawn, and again only when values have changed. Returns null while no
 * result of this objective is known. The previous result stays until the next one is complete.
 */
function useComputed(
  trials: readonly TrialView[],
  axes: readonly Axis[],
  objective: number,
  values: ReadonlyMap<number, number>,
  step: number | null,
): Computed | null {
  const [done, setDone] = useState<Computed | null>(null);
  const key = useMemo(
    () => `${objective} ${step ?? "end"} ${axes.map((axis) => axis.name).join(" ")} ${fingerprint(values)}`,
    [objective, step, axes, values],
  );
  const known = done?.key === key;
  useEffect(() => {
    if (known || values.size < ENOUGH) return undefined;
    const timer = setTimeout(() =>
      setDone({ key, objective, trials: values.size, step, found: importanceOf(trials, axes, values) }),
    );
    return () => clearTimeout(timer);
  }, [known, key, trials, axes, objective, values, step]);
  return done?.objective === objective ? done : null;
}

/** Returns a key that changes with the value of any trial, and with a new value. */
function fingerprint(values: ReadonlyMap<number, number>): string {
  let mixed = values.size;
  for (const [number, value] of values) mixed = (mixed * 31 + number + value * 1_000_003) % 2 ** 40;
  return `${values.size} ${mixed}`;
}

function importanceOf(
  trials: readonly TrialView[],
  axes: readonly Axis[],
  values: ReadonlyMap<number, number>,
): Importance | null {
  const valued = trials.filter((trial) => values.has(trial.number));
  const every = Math.ceil(valued.length / AT_MOST);
  const kept = valued.filter((_, index) => index % every === 0);
  // A parameter that a trial lacks is placed below all values, where a cut can separate it.
  const rows = kept.map((trial) => axes.map((axis) => placeOn(axis, parametersOf(trial)[axis.name]) ?? -0.5));
  return importance(rows, ranksOf(kept.map((trial) => values.get(trial.number) ?? 0)));
}

/** Returns ranks instead of values, because one diverged training would dominate. */
function ranksOf(values: readonly number[]): number[] {
  const ascending = [...values].sort((a, b) => a - b);
  return values.map((value) => (ascending.indexOf(value) + ascending.lastIndexOf(value)) / 2);
}
