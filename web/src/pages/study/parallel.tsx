// Parallel coordinates of all trials. Dragging along an axis selects trials, here and in the charts
// and table below.
import { useMemo, useState } from "react";
import { Canvas, type At, type Draw, type Size } from "../../charts/canvas";
import { areaOf } from "../../charts/frame";
import { drawChosen, lineAt, type Line } from "../../charts/learning";
import { INSETS, drawBrushes, drawParallel, placeAt, scalesOf, uprightAt, type Upright } from "../../charts/parallel";
import { place, tickText, ticks } from "../../charts/scale";
import type { TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { plural } from "../../words/number";
import { RampKey } from "./controls";
import type { Hover } from "./hover";
import { parametersOf, placeOn, type Axis, type Brush, type Brushes } from "./space";

interface Props {
  axes: readonly Axis[];
  /** Name of the value's axis, the last one. */
  valueName: string;
  valuePlaces: ReadonlyMap<number, number>;
  valueTicks: readonly { at: number; text: string }[];
  ranked: ReadonlyMap<number, number>;
  trials: readonly TrialView[];
  inside: ReadonlySet<number>;
  brushes: Brushes;
  onBrush: (brushes: Brushes) => void;
  hover: Hover;
}

/** Key of the value's axis among brushes; no parameter can have this name. */
export const VALUE = "\u0000value";

interface Drag {
  key: string;
  from: number;
  to: number;
}

export function Parallel({
  axes,
  valueName,
  valuePlaces,
  valueTicks,
  ranked,
  trials,
  inside,
  brushes,
  onBrush,
  hover,
}: Props) {
  const [drag, setDrag] = useState<Drag | null>(null);
  const uprights = useMemo(
    () => [...axes.map(uprightOf), { key: VALUE, name: valueName, ticks: valueTicks }],
    [axes, valueName, valueTicks],
  );
  const lines = useMemo(
    () => trials.map((trial) => lineOf(trial, axes, valuePlaces, ranked)),
    [trials, axes, valuePlaces, ranked],
  );
  const [left, others] = useMemo(
    () => [lines.filter((one) => inside.has(one.number)), lines.filter((one) => !inside.has(one.number))],
    [lines, inside],
  );
  const draw = useMemo(() => drawParallel(uprights, left, others), [uprights, left, others]);
  const shown = useMemo(
    () => (drag === null ? brushes : new Map(brushes).set(drag.key, ordered(drag))),
    [brushes, drag],
  );
  const over = useMemo<Draw>(() => {
    const chosen = drawChosen(
      lines.find((one) => one.number === hover.number),
      scalesOf(uprights.length),
      INSETS,
    );
    const bands = drawBrushes(uprights, shown);
    return (context, size, inks) => {
      chosen?.(context, size, inks);
      bands(context, size, inks);
    };
  }, [lines, hover.number, uprights, shown]);
  const onMove = (at: At | null, size: Size) => {
    const area = areaOf(size, INSETS);
    if (drag !== null && at !== null) setDrag({ ...drag, to: placeAt(area, at.y) });
    else if (drag === null)
      hover.set(at === null ? null : (lineAt(left, area, scalesOf(uprights.length), at)?.number ?? null));
  };
  const onDown = (at: At, size: Size) => {
    const area = areaOf(size, INSETS);
    const upright = uprightAt(uprights, area, at.x);
    if (upright === undefined) return;
    const from = placeAt(area, at.y);
    hover.set(null);
    setDrag({ key: upright.key, from, to: from });
  };
  const onUp = () => {
    if (drag === null) return;
    const next = new Map(brushes);
    // A click without a drag removes the brush.
    if (Math.abs(drag.to - drag.from) < 0.015) next.delete(drag.key);
    else next.set(drag.key, ordered(drag));
    setDrag(null);
    onBrush(next);
  };
  const aside =
    brushes.size === 0 ? null : (
      <button type="button" className="button button-small" onClick={() => onBrush(new Map())}>
        Clear {plural(brushes.size, "brush", "brushes")}
      </button>
    );
  return (
    <Panel title="Parameters and value" aside={aside}>
      <div className="canvas-scroll">
        <div style={{ minWidth: uprights.length * 88 }}>
          <Canvas
            className="canvas-brush"
            label={`Parallel coordinates of ${plural(trials.length, "trial")}: ${uprights.map((one) => one.name).join(", ")}`}
            height={280}
            draw={draw}
            over={over}
            onMove={onMove}
            onDown={onDown}
            onUp={onUp}
          />
        </div>
      </div>
      <p className="chart-note">
        <RampKey
          text={`${inside.size} of ${plural(trials.length, "trial")}; drag along an axis to filter, click it to clear`}
        />
      </p>
    </Panel>
  );
}

function ordered({ from, to }: Drag): Brush {
  return from < to ? [from, to] : [to, from];
}

function uprightOf(axis: Axis): Upright {
  const { name, scale, choices } = axis;
  if (scale === null) {
    const step = Math.max(1, Math.ceil(choices.length / 12));
    return {
      key: name,
      name,
      ticks: choices.filter((_, index) => index % step === 0).map((text) => ({ at: placeOn(axis, text) ?? 0, text })),
    };
  }
  const marks = ticks(scale, 5).map((value) => ({ at: place(scale, value) ?? 0, text: tickText(value) }));
  return { key: name, name: scale.log ? `${name} (log)` : name, ticks: marks };
}

function lineOf(
  trial: TrialView,
  axes: readonly Axis[],
  valuePlaces: ReadonlyMap<number, number>,
  ranked: ReadonlyMap<number, number>,
): Line {
  const given = parametersOf(trial);
  const ys = [...axes.map((axis) => placeOn(axis, given[axis.name])), valuePlaces.get(trial.number) ?? null];
  return { number: trial.number, rank: ranked.get(trial.number), xs: ys.map((_, index) => index), ys };
}
