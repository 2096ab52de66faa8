// Curves of one metric of several jobs.
import { useMemo } from "react";
import type uPlot from "uplot";
import { cursor, padding, xAxis, yAxis } from "./axes";
import { line, powersOfTen, tick, useCursor, valueAt } from "./job-charts";
import { metricRange } from "./metric";
import { overlay, type OverlaidPoint } from "./overlay";
import { Plot, type Colours } from "./plot";
import { tickText } from "./scale";

const HEIGHT = 220;

export interface JobCurve {
  /** Place of the job, which gives its colour. */
  place: number;
  name: string;
  points: readonly OverlaidPoint[];
}

interface Props {
  metric: string;
  curves: readonly JobCurve[];
  /** Share of the earlier values in the smoothed line, 0 to 0.99. */
  smoothing: number;
  log: boolean;
}

export function OverlayChart({ metric, curves, smoothing, log }: Props) {
  const data = useMemo(
    () =>
      overlay(
        curves.map(({ points }) => points),
        smoothing,
        log,
      ),
    [curves, smoothing, log],
  );
  const [at, onCursor] = useCursor();
  const index = at ?? data[0].length - 1;
  const text = (column: number) => {
    const value = valueAt(data, column, index);
    return value === null ? "–" : tickText(value);
  };
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => ({
    legend: { show: false },
    padding: padding(8, "step"),
    cursor: cursor("compare"),
    scales: {
      x: { time: false },
      y: log
        ? { distr: 3, range: (_, min, max) => metricRange(min, max, true) }
        : { range: (_, min, max) => metricRange(min, max, false) },
    },
    axes: [
      xAxis(colours, "step"),
      log
        ? { ...yAxis(colours, tickText), splits: (_, _axis, min, max) => powersOfTen(min, max) }
        : yAxis(colours, tick),
    ],
    series: [
      {},
      ...curves.map(({ place }) => ({
        ...line(colours.jobs[place % colours.jobs.length] ?? colours.accent),
        width: 1.5,
        spanGaps: true,
      })),
    ],
    hooks: { setCursor: [onCursor] },
  });
  const keys = curves.map(({ name, place }, column) => ({ name, place, value: text(column + 1) }));
  return (
    <figure className="chart">
      <figcaption className="chart-head">
        <span className="chart-title">{metric}</span>
        {keys.map(({ name, place, value }) => (
          <span key={place} className="chart-key">
            <span className="compare-swatch" data-job={place} aria-hidden="true" />
            {name} <strong className="num">{value}</strong>
          </span>
        ))}
      </figcaption>
      <Plot
        label={`${metric} by step: ${keys.map(({ name, value }) => `${name} ${value}`).join(", ")}`}
        data={data}
        options={options}
        shape={`${metric} ${log} ${curves.map(({ place }) => place).join(" ")}`}
        height={HEIGHT}
      />
    </figure>
  );
}
