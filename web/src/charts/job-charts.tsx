// Charts of the job page.
import { useEffect, useMemo, useRef, useState, type ReactNode } from "react";
import uPlot from "uplot";
import type { EvaluationView, SampleView } from "../api/types";
import type { Mark, SizePoint } from "../live/history";
import { count, loss, millis, NONE, percent, rate, splitName } from "../words/number";
import { compact, cursor, marksPlugin, padding, xAxis, yAxis, type XMark } from "./axes";
import { curve, noise, phases, sizes, type XKind } from "./curves";
import { Plot, type Colours } from "./plot";

const HEIGHT = 208;

interface CurveProps {
  metric: "loss" | "accuracy";
  samples: readonly SampleView[];
  evaluations: readonly EvaluationView[];
  marks: readonly Mark[];
  x: XKind;
  group: string;
}

export function CurveChart({ metric, samples, evaluations, marks, x, group }: CurveProps) {
  const data = useMemo(() => curve(samples, evaluations, x, metric), [samples, evaluations, x, metric]);
  const current = useCurrent(useMemo(() => marks.map((mark) => toX(mark, x)), [marks, x]));
  const format = metric === "loss" ? loss : (value: number | null | undefined) => percent(value, 2);
  const [at, onCursor] = useCursor();
  const trained = newestOf(data, 1);
  const tested = newestOf(data, 2);
  const split = splitName(evaluations[evaluations.length - 1]?.split);
  if (trained === null && tested === null) return null;
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => ({
    legend: { show: false },
    padding: padding(18, x),
    cursor: cursor(group),
    scales: {
      x: { time: x === "time" },
      y: { range: (_, min, max) => (metric === "loss" ? lossRange(min, max) : accuracyRange(min, max)) },
    },
    axes: [xAxis(colours, x), yAxis(colours, metric === "loss" ? tick : (value) => `${tick(value * 100)} %`)],
    series: [
      {},
      { stroke: colours.accent, width: 1.5, spanGaps: true, points: { show: false } },
      { stroke: colours.second, width: 1.5, spanGaps: true, points: { show: true, size: 6, fill: colours.second } },
    ],
    plugins: [marksPlugin(() => current.current, colours)],
    hooks: { setCursor: [onCursor] },
  });
  const keys = [
    { colour: 1 as const, name: "train", newest: trained },
    { colour: 2 as const, name: split, newest: tested },
  ].filter(({ newest }) => newest !== null);
  const label = `${metric} by ${x}: ${keys.map(({ name, newest }) => `${name} ${format(newest)}`).join(", ")}`;
  return (
    <Figure
      title={metric === "loss" ? "Loss" : "Accuracy"}
      keys={keys.map(({ colour, name, newest }) => ({
        colour,
        name,
        value: format(at === null ? newest : valueAt(data, colour, at)),
      }))}
    >
      <Plot label={label} data={data} options={options} shape={`${metric} ${x}`} height={HEIGHT} />
    </Figure>
  );
}

/** Omitted if not measured, as for a command. */
export function PhaseChart({ samples, x, marks, group }: Pick<CurveProps, "samples" | "x" | "marks" | "group">) {
  const data = useMemo(() => phases(samples, x), [samples, x]);
  const current = useCurrent(useMemo(() => marks.map((mark) => toX(mark, x)), [marks, x]));
  const [at, onCursor] = useCursor();
  const newest = data[0].length - 1;
  if (newest < 0) return null;
  const index = Math.min(at ?? newest, newest);
  const part = (upper: number, lower: number | null) => {
    const above = data[upper]?.[index];
    if (above === undefined || above === null) return "–";
    return millis(above - (lower === null ? 0 : (data[lower]?.[index] ?? 0)));
  };
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => ({
    legend: { show: false },
    padding: padding(18, x),
    cursor: cursor(group),
    scales: { x: { time: x === "time" }, y: { range: (_, _min, max) => [0, Math.max(max * 1.08, 0.001)] } },
    axes: [xAxis(colours, x), yAxis(colours, (value) => `${tick(value)} ms`)],
    // Sums in descending order. Each band is painted between its sum and the next, so that colours
    // do not overlap.
    series: [{}, line(colours.third), line(colours.second), { ...line(colours.accent), fill: `${colours.accent}55` }],
    bands: [
      { series: [1, 2], fill: `${colours.third}55` },
      { series: [2, 3], fill: `${colours.second}55` },
    ],
    plugins: [marksPlugin(() => current.current, colours)],
    hooks: { setCursor: [onCursor] },
  });
  return (
    <Figure
      title="Time per step"
      keys={[
        { colour: 1, name: "compute", value: part(3, null) },
        { colour: 2, name: "exchange", value: part(2, 3) },
        { colour: 3, name: "data", value: part(1, 2) },
      ]}
    >
      <Plot
        label="Time per step: compute, exchange and data, stacked"
        data={data}
        options={options}
        shape={`phases ${x}`}
        height={HEIGHT}
      />
    </Figure>
  );
}

/**
 * Shown once measured. Batches well below the noise scale benefit from more examples, those above
 * do not.
 */
export function NoiseChart({ samples, x, marks, group }: Pick<CurveProps, "samples" | "x" | "marks" | "group">) {
  const data = useMemo(() => noise(samples, x), [samples, x]);
  const current = useCurrent(useMemo(() => marks.map((mark) => toX(mark, x)), [marks, x]));
  const [at, onCursor] = useCursor();
  const newest = data[0].length - 1;
  if (newest < 0) return null;
  const examples = (series: number, index: number) => {
    const value = data[series]?.[index];
    return value === null || value === undefined ? NONE : count(value);
  };
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => ({
    legend: { show: false },
    padding: padding(18, x),
    cursor: cursor(group),
    // Logarithmic, because noise grows by orders of magnitude during training.
    scales: { x: { time: x === "time" }, y: { distr: 3, range: (_, min, max) => decades(min, max) } },
    axes: [xAxis(colours, x), { ...yAxis(colours, compact), splits: (_, _axis, min, max) => powersOfTen(min, max) }],
    series: [{}, line(colours.accent), { ...line(colours.second), dash: [5, 3] }],
    plugins: [marksPlugin(() => current.current, colours)],
    hooks: { setCursor: [onCursor] },
  });
  const gain = samples[samples.length - 1]?.gain;
  const index = Math.min(at ?? newest, newest);
  return (
    <Figure
      title="Gradient noise, examples"
      keys={[
        { colour: 1, name: "noise scale", value: examples(1, index) },
        { colour: 2, name: "batch", value: examples(2, index) },
      ]}
      note={gain === null || gain === undefined ? undefined : `an update is worth ${rate(gain)} steps`}
    >
      <Plot
        label={`Gradient noise scale by ${x}: now ${examples(1, newest)} examples, a batch has ${examples(2, newest)}`}
        data={data}
        options={options}
        shape={`noise ${x}`}
        height={HEIGHT}
      />
    </Figure>
  );
}

export function SizeChart({ points }: { points: readonly SizePoint[] }) {
  const data = useMemo(() => sizes(points), [points]);
  const [at, onCursor] = useCursor();
  const index = at ?? points.length - 1;
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => ({
    legend: { show: false },
    padding: padding(8, "time"),
    cursor: cursor("sizes"),
    scales: { x: { time: true }, y: { range: (_, _min, max) => [0, Math.max(2, Math.ceil(max * 1.15))] } },
    axes: [
      xAxis(colours, "time"),
      {
        ...yAxis(colours, (value) => (Number.isInteger(value) ? String(value) : "")),
        incrs: [1, 2, 5, 10, 20, 50, 100, 200],
      },
    ],
    series: [
      {},
      {
        stroke: colours.accent,
        fill: `${colours.accent}22`,
        width: 1.5,
        points: { show: false },
        ...(stepped ? { paths: stepped } : {}),
      },
      {
        stroke: colours.second,
        width: 1.5,
        dash: [5, 3],
        points: { show: false },
        ...(stepped ? { paths: stepped } : {}),
      },
    ],
    hooks: { setCursor: [onCursor] },
  });
  const now = points[index];
  return (
    <Figure
      title="Workers and PS shards"
      keys={[
        { colour: 1, name: "workers", value: now === undefined ? "–" : String(now.workers) },
        { colour: 2, name: "PS shards", value: now === undefined ? "–" : String(now.psShards) },
      ]}
    >
      <Plot label="Workers and PS shards over time" data={data} options={options} shape="sizes" height={HEIGHT} />
    </Figure>
  );
}

interface Key {
  colour: 1 | 2 | 3;
  name: string;
  value: string;
}

interface FigureProps {
  title: string;
  keys: readonly Key[];
  note?: string | undefined;
  children: ReactNode;
}

export function Figure({ title, keys, note, children }: FigureProps) {
  return (
    <figure className="chart">
      <figcaption className="chart-head">
        <span className="chart-title">{title}</span>
        {keys.map(({ colour, name, value }) => (
          <span key={name} className="chart-key">
            <span className="chart-line" data-colour={colour} aria-hidden="true" />
            {name} <strong className="num">{value}</strong>
          </span>
        ))}
        {note === undefined ? null : <span className="chart-key">{note}</span>}
      </figcaption>
      {children}
    </figure>
  );
}

/**
 * Index under the pointer; `null` if it is elsewhere, in which case the legend shows the newest
 * values.
 */
export function useCursor(): [number | null, (plot: uPlot) => void] {
  const [at, setAt] = useState<number | null>(null);
  const set = useRef((plot: uPlot) => setAt(plot.cursor.idx ?? null));
  return [at, (plot) => set.current(plot)];
}

/** Values that a canvas reads when it draws, without being rebuilt. */
function useCurrent<T>(value: T): { readonly current: T } {
  const ref = useRef(value);
  useEffect(() => {
    ref.current = value;
  });
  return ref;
}

/** Returns the newest value of a series; `null` without values. */
function newestOf(data: uPlot.AlignedData, series: number): number | null {
  return valueAt(data, series, data[0].length - 1);
}

/** Returns the value at or before an index, because the test series has only few points. */
export function valueAt(data: uPlot.AlignedData, series: number, index: number): number | null {
  for (let at = index; at >= 0; at -= 1) {
    const value = data[series]?.[at];
    if (value !== null && value !== undefined) return value;
  }
  return null;
}

function toX(mark: Mark, x: XKind): XMark {
  return { x: x === "step" ? mark.step : mark.atMs / 1000, label: mark.label };
}

export function line(colour: string): uPlot.Series {
  return { stroke: colour, width: 1.25, points: { show: false } };
}

export function tick(value: number): string {
  return String(Number(value.toPrecision(3)));
}

/** Returns whole decades around the values, for a logarithmic axis. */
function decades(min: number | null, max: number | null): [number, number] {
  const low = Math.max(min ?? 1, 0.1);
  const high = Math.max(max ?? 10, low);
  const from = Math.floor(Math.log10(low));
  return [10 ** from, 10 ** Math.max(Math.ceil(Math.log10(high)), from + 1)];
}

/** Returns the values from one decade to another. */
export function powersOfTen(min: number, max: number): number[] {
  const from = Math.round(Math.log10(min));
  return Array.from({ length: Math.round(Math.log10(max)) - from + 1 }, (_, at) => 10 ** (from + at));
}

function lossRange(min: number, max: number): [number, number] {
  const room = Math.max((max - min) * 0.08, 0.01);
  return [Math.max(0, min - room), max + room];
}

function accuracyRange(min: number, max: number): [number, number] {
  const room = Math.max((max - min) * 0.08, 0.005);
  return [Math.max(0, min - room), Math.min(1, max + room)];
}
