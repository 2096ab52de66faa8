// Results of the trials in order of creation, with the best so far and the values at earlier rungs.
import { useMemo } from "react";
import { Canvas, type Draw } from "../../charts/canvas";
import { areaOf, drawXAxis, drawYAxis, toX, toY } from "../../charts/frame";
import { padded, place, scaleOf, type Scale } from "../../charts/scale";
import { dotAt, drawDots, drawRings, type Dot } from "../../charts/scatter";
import type { StudySearch, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { metricText } from "../../words/study";
import { axisText } from "./curves";
import { RungKey } from "./controls";
import type { Hover } from "./hover";
import { history, type HistoryPoint } from "./results";

export function History({
  search,
  objective,
  trials,
  hover,
}: {
  search: StudySearch;
  objective: number;
  trials: readonly TrialView[];
  hover: Hover;
}) {
  const sought = search.objectives[objective];
  const metric = sought?.metric ?? "";
  const points = useMemo(() => history(trials, sought?.goal ?? "maximize", objective), [trials, sought, objective]);
  const scales = useMemo(() => {
    const values = trials.flatMap((trial) => trial.rungs.map((rung) => rung.values[objective]));
    return {
      x: padded(scaleOf([0, ...trials.map((trial) => trial.number)], false), 0.02),
      y: padded(scaleOf([...values, ...points.map((point) => point.value)], false), 0.05),
    };
  }, [trials, points, objective]);
  const dots = useMemo(() => dotsOf(trials, objective, scales), [trials, objective, scales]);
  const draw = useMemo<Draw>(
    () => (context, size, inks) => {
      const area = areaOf(size);
      drawYAxis(context, area, scales.y, inks, (value) => axisText(metric, value));
      drawXAxis(context, area, scales.x, inks, (value) => (Number.isInteger(value) ? String(value) : ""));
      drawDots(context, area, dots, inks);
      context.strokeStyle = inks.text;
      context.lineWidth = 1.5;
      drawBest(
        context,
        points,
        (number) => toX(area, scales.x, number) ?? 0,
        (value) => toY(area, scales.y, value) ?? 0,
        area.right,
      );
    },
    [dots, points, scales, metric],
  );
  const over = useMemo(() => drawRings(dots, hover.number), [dots, hover.number]);
  const chosen = points.find((point) => point.number === hover.number);
  const deepest = Math.max(0, ...trials.map((trial) => trial.rungs.length - 1));
  return (
    <Panel title="History">
      {points.length === 0 ? (
        <Empty title="No trial has completed a rung yet" />
      ) : (
        <>
          <Canvas
            label={`${metric} by number of the trial, with the best so far`}
            height={260}
            draw={draw}
            {...(over === undefined ? {} : { over })}
            onMove={(at, size) => hover.set(at === null ? null : (dotAt(dots, areaOf(size), at)?.number ?? null))}
            onUp={hover.open}
          />
          <p className="chart-note">
            {chosen === undefined ? (
              <>
                {metric} by trial; the line is the best so far. <RungKey deepest={deepest} />
              </>
            ) : (
              <>
                <strong>trial {chosen.number}</strong> {metricText(metric, chosen.value)}, best until then{" "}
                {metricText(metric, chosen.best)}
              </>
            )}
          </p>
        </>
      )}
    </Panel>
  );
}

/** Returns a dot per completed rung; for trials without rungs one for their outcome. */
function dotsOf(trials: readonly TrialView[], objective: number, scales: { x: Scale; y: Scale }): Dot[] {
  return trials.flatMap((trial) => {
    const measured = trial.rungs.length > 0 ? trial.rungs : trial.outcome === null ? [] : [trial.outcome];
    return measured.flatMap((point, rung) => {
      const x = place(scales.x, trial.number);
      const y = place(scales.y, point.values[objective]);
      return x === null || y === null
        ? []
        : [
            {
              number: trial.number,
              x,
              y,
              ink: (inks: { rungs: readonly string[]; mark: string }) =>
                inks.rungs[rung % inks.rungs.length] ?? inks.mark,
            },
          ];
    });
  });
}

/** Draws a stepped line: horizontal between trials, vertical at a better one. */
function drawBest(
  context: CanvasRenderingContext2D,
  points: readonly HistoryPoint[],
  x: (number: number) => number,
  y: (value: number) => number,
  end: number,
): void {
  context.beginPath();
  points.forEach(({ number, best }, index) => {
    const before = points[index - 1];
    if (before?.best === best) return;
    if (before === undefined) context.moveTo(x(number), y(best));
    else context.lineTo(x(number), y(before.best));
    context.lineTo(x(number), y(best));
  });
  const last = points[points.length - 1];
  if (last !== undefined) context.lineTo(end, y(last.best));
  context.stroke();
}
