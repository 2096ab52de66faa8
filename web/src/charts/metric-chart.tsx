// Chart of one metric: its smoothed mean, and the range of its values.
import { useMemo } from "react";
import type uPlot from "uplot";
import type { MetricSeries } from "../api/types";
import { plural } from "../words/number";
import { cursor, padding, xAxis, yAxis } from "./axes";
import { Figure, line, powersOfTen, tick, useCursor, valueAt } from "./job-charts";
import { metricColumns, metricRange } from "./metric";
import { Plot, type Colours } from "./plot";
import { tickText } from "./scale";

const HEIGHT = 180;
/** Opacity of the band and of the line without smoothing, in hexadecimal. */
const BAND = "22";
const FAINT = "55";

interface Props {
  series: MetricSeries;
  /** Share of the earlier values in the smoothed line, 0 to 0.99. */
  smoothing: number;
  log: boolean;
  group: string;
}

export function MetricChart({ series, smoothing, log, group }: Props) {
  const data = useMemo(() => metricColumns(series.points, smoothing, log), [series.points, smoothing, log]);
  const [at, onCursor] = useCursor();
  const index = at ?? data[0].length - 1;
  const text = (column: number) => {
    const value = valueAt(data, column, index);
    return value === null ? "–" : tickText(value);
  };
  const options = (colours: Colours): Omit<uPlot.Options, "width" | "height"> => ({
    legend: { show: false },
    padding: padding(8, "step"),
    cursor: cursor(group),
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
      { ...line(colours.accent), width: 1.5, spanGaps: true },
      { ...line(`${colours.accent}${FAINT}`), show: smoothing > 0 },
      line("transparent"),
      line("transparent"),
    ],
    bands: [{ series: [3, 4], fill: `${colours.accent}${BAND}` }],
    hooks: { setCursor: [onCursor] },
  });
  const { name, points } = series;
  const values = points[index]?.values ?? 0;
  return (
    <Figure
      title={name}
      keys={[{ colour: 1, name: smoothing > 0 ? "smoothed" : "mean", value: text(1) }]}
      note={values > 1 ? `${text(4)} to ${text(3)} in ${plural(values, "value")}` : undefined}
    >
      <Plot
        label={`${name} by step: ${text(1)}`}
        data={data}
        options={options}
        shape={`${name} ${log} ${smoothing > 0}`}
        height={HEIGHT}
      />
    </Figure>
  );
}
