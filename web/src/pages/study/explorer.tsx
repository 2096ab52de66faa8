// Parameters against the value. Brushes select the trials of the scatter plot and the table.
import { useMemo, useState } from "react";
import type { StudySearch, TrialView } from "../../api/types";
import { place, scaleOf, ticks } from "../../charts/scale";
import { Panel } from "../../ui/panel";
import { count } from "../../words/number";
import { Contour } from "./contour";
import { axisText } from "./curves";
import type { Hover } from "./hover";
import { ImportancePanel } from "./importance";
import { Parallel } from "./parallel";
import { ranks, valueOf } from "./results";
import { Scatter } from "./scatter";
import { axesOf, brushed, type Brushes } from "./space";
import { TrialTable } from "./table";

interface Props {
  search: StudySearch;
  /** Whether a job can begin from a trial's checkpoint. */
  forks: boolean;
  objective: number;
  trials: readonly TrialView[];
  hover: Hover;
}

export function Explorer({ search, forks, objective, trials, hover }: Props) {
  const [brushes, setBrushes] = useState<Brushes>(new Map());
  const sought = search.objectives[objective];
  const metric = sought?.metric ?? "";
  const axes = useMemo(() => axesOf(search.parameters, trials), [search.parameters, trials]);
  const ranked = useMemo(() => ranks(trials, sought?.goal ?? "maximize", objective), [trials, sought, objective]);
  const value = useMemo(() => {
    const scale = scaleOf(
      trials.map((trial) => valueOf(trial, objective)),
      false,
    );
    const places = new Map<number, number>();
    for (const trial of trials) {
      const at = place(scale, valueOf(trial, objective));
      if (at !== null) places.set(trial.number, at);
    }
    return {
      places,
      ticks: ticks(scale, 5).map((one) => ({ at: place(scale, one) ?? 0, text: axisText(metric, one) })),
    };
  }, [trials, objective, metric]);
  const left = useMemo(
    () => brushed(trials, axes, brushes, (trial) => value.places.get(trial.number) ?? null),
    [trials, axes, brushes, value],
  );
  const inside = useMemo(() => new Set(left.map((trial) => trial.number)), [left]);
  return (
    <>
      <Parallel
        axes={axes}
        valueName={metric}
        valuePlaces={value.places}
        valueTicks={value.ticks}
        ranked={ranked}
        trials={trials}
        inside={inside}
        brushes={brushes}
        onBrush={setBrushes}
        hover={hover}
      />
      <div className="study-charts">
        <Scatter axes={axes} metric={metric} objective={objective} ranked={ranked} trials={left} hover={hover} />
        {axes.length > 1 ? (
          <Contour search={search} axes={axes} objective={objective} trials={left} hover={hover} />
        ) : null}
      </div>
      <ImportancePanel search={search} axes={axes} objective={objective} trials={trials} />
      <Panel
        title={left.length === trials.length ? "Trials" : `Trials: ${count(left.length)} of ${count(trials.length)}`}
        className="panel-flush"
      >
        <TrialTable search={search} forks={forks} trials={left} hover={hover} />
      </Panel>
    </>
  );
}
