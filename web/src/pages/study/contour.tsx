// Two parameters against each other: the results of trials as areas, with the trials as points.
import { useMemo, useState } from "react";
import { Canvas, type At, type Draw, type Inks, type Size } from "../../charts/canvas";
import { BANDS, bandOf, drawField, levelOf, shade } from "../../charts/contour";
import { valueIn } from "../../charts/field";
import { areaOf, drawXAxis, drawYAxis, type Area } from "../../charts/frame";
import { dotAt, drawDots, drawRings, spot, type Dot } from "../../charts/scatter";
import { drawTip } from "../../charts/tip";
import type { StudySearch, TrialView } from "../../api/types";
import { Panel } from "../../ui/panel";
import { Empty } from "../../ui/states";
import { plural } from "../../words/number";
import { budgetText, metricText, parameterText } from "../../words/study";
import { axisText } from "./curves";
import { Choice } from "./controls";
import type { Hover } from "./hover";
import { parametersOf, type Axis } from "./space";
import { surfaceOf, textAt, type Surface } from "./surface";

/** With fewer trials a field shows no more than the points. */
const ENOUGH = 6;
const HEIGHT = 270;
const MANY = 1000;

interface Props {
  search: StudySearch;
  axes: readonly Axis[];
  objective: number;
  trials: readonly TrialView[];
  hover: Hover;
}

export function Contour({ search, axes, objective, trials, hover }: Props) {
  const [chosen, setChosen] = useState<readonly [number, number]>([0, 1]);
  const [across, up] = [axes[chosen[0]], axes[chosen[1]]];
  if (across === undefined || up === undefined) return null;
  const names = axes.map((axis) => axis.name);
  // If the other axis has this parameter, the two are swapped.
  const choose = (which: 0 | 1) => (index: number) => {
    const other = chosen[which === 0 ? 1 : 0] === index ? chosen[which] : chosen[which === 0 ? 1 : 0];
    setChosen(which === 0 ? [index, other] : [other, index]);
  };
  const tools = (
    <div className="chart-tools">
      <Choice label="Across" shown value={chosen[0]} options={names} onChange={choose(0)} />
      <Choice label="Up" shown value={chosen[1]} options={names} onChange={choose(1)} />
    </div>
  );
  return (
    <Panel title={`${search.objectives[objective]?.metric ?? ""} by two parameters`} aside={tools}>
      <Plot search={search} across={across} up={up} objective={objective} trials={trials} hover={hover} />
    </Panel>
  );
}

interface PlotProps extends Omit<Props, "axes"> {
  across: Axis;
  up: Axis;
}

function Plot({ search, across, up, objective, trials, hover }: PlotProps) {
  const [under, setUnder] = useState<readonly [number, number] | null>(null);
  const sought = search.objectives[objective];
  const metric = sought?.metric ?? "";
  const surface = useMemo(
    () => surfaceOf(trials, across, up, objective, sought?.goal ?? "maximize"),
    [trials, across, up, objective, sought],
  );
  const dots = useMemo(() => dotsOf(surface), [surface]);
  const draw = useMemo<Draw>(() => drawPlot(surface, dots, across, up), [surface, dots, across, up]);
  const pointed = surface.placed.find(({ trial }) => trial.number === hover.number);
  const over = useMemo<Draw | undefined>(() => {
    const rings = drawRings(dots, hover.number);
    if (pointed === undefined || rings === undefined) return undefined;
    const given = parametersOf(pointed.trial);
    const told = [across, up].map(({ name }) => `${name} ${parameterText(given[name])}`);
    return (context, size, inks) => {
      rings(context, size, inks);
      drawTip(
        context,
        areaOf(size),
        spot(pointed, areaOf(size)),
        [`trial ${pointed.trial.number}: ${metricText(metric, pointed.value)}`, ...told],
        inks,
      );
    };
  }, [dots, hover.number, pointed, across, up, metric]);
  const { placed, range } = surface;
  if (placed.length < ENOUGH || range === null) {
    return (
      <Empty title="Too few trials for a surface">
        {placed.length} of at least {ENOUGH} have a value, {across.name} and {up.name}.
      </Empty>
    );
  }
  const onMove = (at: At | null, size: Size) => {
    hover.set(at === null ? null : (dotAt(dots, areaOf(size), at)?.number ?? null));
    setUnder(at === null ? null : placeUnder(areaOf(size), at));
  };
  const here = under === null ? null : valueIn(surface.field, ...under);
  return (
    <>
      <Canvas
        label={`${metric} of ${plural(placed.length, "trial")} by ${across.name}, across, and ${up.name}, upwards: ${bestText(surface, across, up, metric)}`}
        height={HEIGHT}
        draw={draw}
        {...(over === undefined ? {} : { over })}
        onMove={onMove}
        onUp={hover.open}
      />
      <Key surface={surface} range={range} metric={metric} />
      <p className="chart-note">
        {under === null || here === null ? (
          <>
            Smoothed over {plural(placed.length, "trial")} by rank
            {surface.step === null ? "" : `, after ${budgetText(search, surface.step)}`}
            {logText(across, up)}; blank where no trial is near
          </>
        ) : (
          <>
            About <strong>{axisText(metric, surface.valueOf(here))}</strong> at {across.name} {textAt(across, under[0])}
            , {up.name} {textAt(up, under[1])}
          </>
        )}
      </p>
    </>
  );
}

/** Shows the colours from the worst to the best values, with the values between them. */
function Key({ surface, range, metric }: { surface: Surface; range: readonly [number, number]; metric: string }) {
  const value = (band: number) => axisText(metric, Number(surface.valueOf(levelOf(band, range)).toPrecision(3)));
  if (range[1] <= range[0]) return <p className="chart-note">All trials have the same value so far.</p>;
  return (
    <div className="contour-key" role="group" aria-label={`Colours of ${metric}`}>
      <div className="contour-bands">
        {Array.from({ length: BANDS }, (_, band) => (
          <span key={band} data-band={band} title={`${value(band)} to ${value(band + 1)}`} />
        ))}
      </div>
      <div className="contour-values num">
        {[0, BANDS / 3, (2 * BANDS) / 3, BANDS].map((band) => (
          <span key={band}>{value(band)}</span>
        ))}
      </div>
    </div>
  );
}

function dotsOf({ placed, range }: Surface): Dot[] {
  return placed.map(({ trial, x, y, rank }) => ({
    number: trial.number,
    x,
    y,
    ink: (inks: Inks) => (range === null ? inks.mark : shade(inks, bandOf(rank, range))),
  }));
}

function drawPlot({ field, range }: Surface, dots: readonly Dot[], across: Axis, up: Axis): Draw {
  return (context, size, inks) => {
    const area = areaOf(size);
    if (across.scale === null) drawChoicesAcross(context, area, across, inks);
    else drawXAxis(context, area, across.scale, inks);
    if (up.scale === null) drawChoicesUp(context, area, up, inks);
    else drawYAxis(context, area, up.scale, inks);
    // Drawn over the grid, which remains visible where the field is unknown.
    if (range !== null) drawField(context, area, field, range, inks);
    context.strokeStyle = inks.grid;
    context.lineWidth = 1;
    context.strokeRect(area.left, area.top, area.right - area.left, area.bottom - area.top);
    if (dots.length <= MANY) drawDots(context, area, dots, inks, inks.surface);
    else drawSpecks(context, area, dots, inks);
  };
}

/** With many trials only their positions are drawn: their colours would cover the field. */
function drawSpecks(context: CanvasRenderingContext2D, area: Area, dots: readonly Dot[], inks: Inks): void {
  context.globalAlpha = 0.45;
  context.fillStyle = inks.surface;
  for (const one of dots) {
    const [x, y] = spot(one, area);
    context.fillRect(x - 0.5, y - 0.5, 1, 1);
  }
  context.globalAlpha = 1;
}

function drawChoicesAcross(context: CanvasRenderingContext2D, area: Area, { choices }: Axis, inks: Inks): void {
  context.textAlign = "center";
  context.textBaseline = "top";
  context.fillStyle = inks.muted;
  const band = (area.right - area.left) / choices.length;
  choices.forEach((choice, index) =>
    context.fillText(choice, area.left + (index + 0.5) * band, area.bottom + 7, band * 0.95),
  );
}

function drawChoicesUp(context: CanvasRenderingContext2D, area: Area, { choices }: Axis, inks: Inks): void {
  context.textAlign = "right";
  context.textBaseline = "middle";
  context.fillStyle = inks.muted;
  const band = (area.bottom - area.top) / choices.length;
  choices.forEach((choice, index) =>
    context.fillText(choice, area.left - 6, area.bottom - (index + 0.5) * band, area.left - 8),
  );
}

/** Returns the place of the pointer as shares of the axes; null outside of them. */
function placeUnder(area: Area, at: At): readonly [number, number] | null {
  const x = (at.x - area.left) / (area.right - area.left);
  const y = (area.bottom - at.y) / (area.bottom - area.top);
  return x < 0 || x > 1 || y < 0 || y > 1 ? null : [x, y];
}

function bestText({ placed }: Surface, across: Axis, up: Axis, metric: string): string {
  const best = placed[placed.length - 1];
  if (best === undefined) return "none";
  const given = parametersOf(best.trial);
  return `the best, trial ${best.trial.number}, has ${metricText(metric, best.value)} at ${parameterText(given[across.name])} and ${parameterText(given[up.name])}`;
}

function logText(...axes: readonly Axis[]): string {
  const log = axes.filter((axis) => axis.scale?.log === true).map((axis) => axis.name);
  return log.length === 0 ? "" : `; ${log.join(" and ")} on ${log.length === 1 ? "a log axis" : "log axes"}`;
}
