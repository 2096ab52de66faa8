// One parameter against the value, for the trials that the brushes select. A parameter with a log
// scale has a log axis.
import { useMemo, useState } from "react";
import { Canvas, rankInk, type Draw, type Inks } from "../../charts/canvas";
import { areaOf, drawXAxis, drawYAxis, type Area } from "../../charts/frame";
import { padded, place, scaleOf } from "../../charts/scale";
import { dotAt, drawDots, drawRings, type Dot } from "../../charts/scatter";
import type { TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { metricText, parameterText } from "../../words/study";
import { axisText } from "./curves";
import { Choice, Toggle } from "./controls";
import type { Hover } from "./hover";
import { valueOf } from "./results";
import { parametersOf, placeOn, type Axis } from "./space";

interface Props {
  axes: readonly Axis[];
  metric: string;
  objective: number;
  ranked: ReadonlyMap<number, number>;
  trials: readonly TrialView[];
  hover: Hover;
}

const ROOM = 0.04;

export function Scatter({ axes, metric, objective, ranked, trials, hover }: Props) {
  const [wanted, setWanted] = useState(0);
  const [logY, setLogY] = useState(false);
  const axis = axes[Math.min(wanted, axes.length - 1)];
  const y = useMemo(
    () =>
      padded(
        scaleOf(
          trials.map((trial) => valueOf(trial, objective)),
          logY,
        ),
        ROOM,
      ),
    [trials, objective, logY],
  );
  const dots = useMemo<Dot[]>(
    () =>
      trials.flatMap((trial) => {
        const left = axis === undefined ? null : placeOn(axis, parametersOf(trial)[axis.name]);
        const top = place(y, valueOf(trial, objective));
        if (left === null || top === null || axis === undefined) return [];
        return [
          {
            number: trial.number,
            x: inset(left, axis) + aside(trial.number, axis),
            y: top,
            ink: (inks: Inks) => rankInk(inks, ranked.get(trial.number)),
          },
        ];
      }),
    [trials, axis, objective, y, ranked],
  );
  const draw = useMemo<Draw>(
    () => (context, size, inks) => {
      const area = areaOf(size);
      drawYAxis(context, area, y, inks, (value) => axisText(metric, value));
      if (axis?.scale) drawXAxis(context, area, padded(axis.scale, ROOM), inks);
      else if (axis !== undefined) drawChoices(context, area, axis, inks);
      drawDots(context, area, dots, inks);
    },
    [dots, axis, y, metric],
  );
  const over = useMemo(() => drawRings(dots, hover.number), [dots, hover.number]);
  const chosen = dots.some((one) => one.number === hover.number)
    ? trials.find((trial) => trial.number === hover.number)
    : undefined;
  if (axis === undefined) return null;
  const tools = (
    <div className="chart-tools">
      <Choice label="Parameter" value={axes.indexOf(axis)} options={axes.map((one) => one.name)} onChange={setWanted} />
      <Toggle label={`log ${metric}`} on={logY} onChange={setLogY} />
    </div>
  );
  return (
    <Panel title={`${metric} by ${axis.name}`} aside={tools}>
      {dots.length === 0 ? (
        <Empty title="No trial to show">None of them has both a value and this parameter.</Empty>
      ) : (
        <>
          <Canvas
            label={`${metric} of ${dots.length} trials by ${axis.name}`}
            height={260}
            draw={draw}
            {...(over === undefined ? {} : { over })}
            onMove={(at, size) => hover.set(at === null ? null : (dotAt(dots, areaOf(size), at)?.number ?? null))}
            onUp={hover.open}
          />
          <p className="chart-note">
            {chosen === undefined ? (
              `${axis.name}${axis.scale?.log === true ? " on a log axis" : ""}; values at the end of each trial's last rung`
            ) : (
              <>
                <strong>trial {chosen.number}</strong> {axis.name} {parameterText(parametersOf(chosen)[axis.name])},{" "}
                {metric} {metricText(metric, valueOf(chosen, objective))}
              </>
            )}
          </p>
        </>
      )}
    </Panel>
  );
}

/**
 * Axes of numbers have a margin at both ends, as from `padded`; choices are in the middle of their
 * share.
 */
function inset(at: number, axis: Axis): number {
  if (axis.scale !== null) return (at + ROOM) / (1 + 2 * ROOM);
  const several = axis.choices.length;
  return several === 1 ? at : (at * (several - 1) + 0.5) / several;
}

/** Places dots of one choice side by side, always in the same positions. */
function aside(number: number, axis: Axis): number {
  if (axis.scale !== null) return 0;
  const golden = (number * 0.618_033_988_75) % 1;
  return ((golden - 0.5) * 0.6) / Math.max(1, axis.choices.length);
}

function drawChoices(context: CanvasRenderingContext2D, area: Area, axis: Axis, inks: Inks): void {
  context.textAlign = "center";
  context.textBaseline = "top";
  context.fillStyle = inks.muted;
  for (const choice of axis.choices) {
    const at = inset(placeOn(axis, choice) ?? 0, axis);
    context.fillText(
      choice,
      area.left + at * (area.right - area.left),
      area.bottom + 7,
      ((area.right - area.left) / axis.choices.length) * 0.95,
    );
  }
}
