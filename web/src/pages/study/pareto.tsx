// Two objectives against each other. The API determines the trials of the front.
import { useMemo, useState } from "react";
import { Canvas, type Draw, type Inks } from "../../charts/canvas";
import { areaOf, drawXAxis, drawYAxis, line } from "../../charts/frame";
import { padded, place, scaleOf } from "../../charts/scale";
import { dotAt, drawDots, drawRings, spot, type Dot } from "../../charts/scatter";
import type { StudySearch, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { plural } from "../../words/number";
import { metricText } from "../../words/study";
import { axisText } from "./curves";
import { Choice } from "./controls";
import type { Hover } from "./hover";
import { valueOf } from "./results";

export function Pareto({ search, trials, hover }: { search: StudySearch; trials: readonly TrialView[]; hover: Hover }) {
  const [across, setAcross] = useState(0);
  const [up, setUp] = useState(1);
  const names = useMemo(() => search.objectives.map((one) => one.metric), [search.objectives]);
  const scales = useMemo(() => {
    const over = (objective: number) =>
      padded(
        scaleOf(
          trials.map((trial) => valueOf(trial, objective)),
          false,
        ),
        0.06,
      );
    return { x: over(across), y: over(up) };
  }, [trials, across, up]);
  const dots = useMemo(
    () =>
      dotsOf(
        trials,
        (trial) => place(scales.x, valueOf(trial, across)),
        (trial) => place(scales.y, valueOf(trial, up)),
      ),
    [trials, scales, across, up],
  );
  const front = useMemo(() => dots.filter((one) => one.best).sort((a, b) => a.x - b.x), [dots]);
  const two = search.objectives.length === 2;
  const draw = useMemo<Draw>(
    () => (context, size, inks) => {
      const area = areaOf(size);
      drawYAxis(context, area, scales.y, inks, (value) => axisText(names[up] ?? "", value));
      drawXAxis(context, area, scales.x, inks, (value) => axisText(names[across] ?? "", value));
      context.strokeStyle = inks.accent;
      context.lineWidth = 1.5;
      // With more than two objectives the front is not a line in any two of them.
      if (two)
        drawFront(
          context,
          front.map((one) => spot(one, area)),
          search.objectives[across]?.goal === "maximize",
        );
      drawDots(context, area, dots, inks);
    },
    [dots, front, scales, two, search.objectives, names, across, up],
  );
  const rings = useMemo(() => drawRings(dots, hover.number), [dots, hover.number]);
  const chosen = trials.find((trial) => trial.number === hover.number);
  const aside = two ? undefined : (
    <div className="chart-tools">
      <Choice label="Objective across" value={across} options={names} onChange={setAcross} />
      <Choice label="Objective upwards" value={up} options={names} onChange={setUp} />
    </div>
  );
  return (
    <Panel title={`Pareto front of ${plural(front.length, "trial")}`} aside={aside}>
      {dots.length === 0 ? (
        <Empty title="No trial has values of both objectives yet" />
      ) : (
        <>
          <Canvas
            label={`${names[up] ?? ""} by ${names[across] ?? ""} of ${plural(dots.length, "trial")}, ${front.length} of them on the Pareto front`}
            height={260}
            draw={draw}
            {...(rings === undefined ? {} : { over: rings })}
            onMove={(at, size) => hover.set(at === null ? null : (dotAt(dots, areaOf(size), at)?.number ?? null))}
            onUp={hover.open}
          />
          <p className="chart-note">
            {chosen === undefined ? (
              `${names[up] ?? ""} by ${names[across] ?? ""}; no other trial betters the marked ones`
            ) : (
              <>
                <strong>trial {chosen.number}</strong>{" "}
                {search.objectives
                  .map(({ metric }, index) => `${metric} ${metricText(metric, valueOf(chosen, index))}`)
                  .join(", ")}
                {chosen.best ? ", on the front" : ""}
              </>
            )}
          </p>
        </>
      )}
    </Panel>
  );
}

/**
 * Draws a staircase: between two trials of the front, the one that is worse on the horizontal axis
 * determines the value.
 */
function drawFront(
  context: CanvasRenderingContext2D,
  front: readonly (readonly [number, number])[],
  maximized: boolean,
): void {
  front.forEach(([x, y], index) => {
    const next = front[index + 1];
    if (next === undefined) return;
    const [cornerX, cornerY] = maximized ? [x, next[1]] : [next[0], y];
    line(context, x, y, cornerX, cornerY);
    line(context, cornerX, cornerY, ...next);
  });
}

type Placed = Dot & { best: boolean };

function dotsOf(
  trials: readonly TrialView[],
  x: (trial: TrialView) => number | null,
  y: (trial: TrialView) => number | null,
): Placed[] {
  const placed = trials.flatMap((trial) => {
    const left = x(trial);
    const top = y(trial);
    if (left === null || top === null) return [];
    return [
      {
        number: trial.number,
        x: left,
        y: top,
        best: trial.best,
        ink: (inks: Inks) => (trial.best ? inks.accent : inks.mark),
      },
    ];
  });
  // The front is drawn on top.
  return placed.sort((a, b) => Number(a.best) - Number(b.best));
}
