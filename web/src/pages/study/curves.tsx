// The learning curves of all trials in one chart.
import { useMemo, useState } from "react";
import { Canvas } from "../../charts/canvas";
import { areaOf } from "../../charts/frame";
import { drawChosen, drawLines, lineAt, type Line } from "../../charts/learning";
import { padded, scaleOf } from "../../charts/scale";
import type { StudySearch, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { count } from "../../words/number";
import { budgetText, isShare, metricText } from "../../words/study";
import { RampKey, Toggle } from "./controls";
import type { Hover } from "./hover";
import { ranks } from "./results";

interface Props {
  search: StudySearch;
  objective: number;
  trials: readonly TrialView[];
  hover: Hover;
}

export function LearningCurves({ search, objective, trials, hover }: Props) {
  const [logX, setLogX] = useState(false);
  const [logY, setLogY] = useState(false);
  const sought = search.objectives[objective];
  const metric = sought?.metric ?? "";
  const lines = useMemo(
    () => linesOf(trials, objective, ranks(trials, sought?.goal ?? "maximize", objective)),
    [trials, objective, sought],
  );
  const scales = useMemo(
    () => ({
      x: padded(
        scaleOf(
          lines.flatMap((one) => ends(one.xs, logX)),
          logX,
        ),
        0.02,
      ),
      y: padded(
        scaleOf(
          lines.flatMap((one) => one.ys),
          logY,
        ),
        0.04,
      ),
    }),
    [lines, logX, logY],
  );
  const draw = useMemo(() => drawLines(lines, scales, (value) => axisText(metric, value)), [lines, scales, metric]);
  const chosen = useMemo(() => lines.find((one) => one.number === hover.number), [lines, hover.number]);
  const over = useMemo(() => drawChosen(chosen, scales), [chosen, scales]);
  const last = chosen?.ys.findLast((value) => value !== null);
  const aside = (
    <div className="chart-tools">
      <Toggle label={`log ${search.budget?.unit ?? "epochs"}`} on={logX} onChange={setLogX} />
      <Toggle label={`log ${metric}`} on={logY} onChange={setLogY} />
    </div>
  );
  return (
    <Panel title="Learning curves" aside={aside}>
      {lines.length === 0 ? (
        <Empty title="No trial has measured anything yet">Curves begin with the first evaluation of a trial.</Empty>
      ) : (
        <>
          <Canvas
            label={`${metric} of ${count(lines.length)} trials by ${search.budget?.unit ?? "epochs"}`}
            height={300}
            draw={draw}
            {...(over === undefined ? {} : { over })}
            onMove={(at, size) =>
              hover.set(at === null ? null : (lineAt(lines, areaOf(size), scales, at)?.number ?? null))
            }
            onUp={hover.open}
          />
          <p className="chart-note" aria-live="off">
            {chosen === undefined ? (
              <RampKey text={`${metric} of ${count(lines.length)} trials by ${search.budget?.unit ?? "epochs"}`} />
            ) : (
              <>
                <strong>trial {chosen.number}</strong> {metricText(metric, last)} after{" "}
                {budgetText(search, chosen.xs[chosen.xs.length - 1] ?? 0)}; click for its job
              </>
            )}
          </p>
        </>
      )}
    </Panel>
  );
}

export function linesOf(trials: readonly TrialView[], objective: number, ranked: ReadonlyMap<number, number>): Line[] {
  return trials.flatMap((trial) => {
    // Some results come only at the end of a rung, such as those of an external trainer.
    const points = trial.curve.length > 0 ? trial.curve : trial.rungs;
    if (points.length === 0) return [];
    return [
      {
        number: trial.number,
        rank: ranked.get(trial.number),
        xs: points.map((point) => point.step),
        ys: points.map((point) => point.values[objective] ?? null),
      },
    ];
  });
}

export function axisText(metric: string, value: number): string {
  return isShare(metric) ? `${Number((value * 100).toPrecision(4))} %` : String(Number(value.toPrecision(3)));
}

/**
 * Returns a curve's first and last x, which determine its axis; on a log axis the first above 0.
 */
function ends(xs: readonly number[], log: boolean): number[] {
  const first = log ? xs.find((x) => x > 0) : xs[0];
  const last = xs[xs.length - 1];
  return [first, last].filter((x) => x !== undefined);
}
