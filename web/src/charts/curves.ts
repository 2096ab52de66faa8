// Converts samples to the columns of a chart. Pure.
import type uPlot from "uplot";
import type { EvaluationView, SampleView } from "../api/types";
import type { SizePoint } from "../live/history";

export type XKind = "step" | "time";

/**
 * Returns training and test points over one ascending x axis: `[x, train, test]`, null where a
 * series has no point. Time is in seconds, as uPlot requires.
 */
export function curve(
  samples: readonly SampleView[],
  evaluations: readonly EvaluationView[],
  kind: XKind,
  metric: "loss" | "accuracy",
): uPlot.AlignedData {
  const rows = new Map<number, { train: number | null; test: number | null }>();
  const row = (point: { step: number; at: string }) => {
    const x = kind === "step" ? point.step : Date.parse(point.at) / 1000;
    const known = rows.get(x);
    if (known !== undefined) return known;
    const made: { train: number | null; test: number | null } = { train: null, test: null };
    rows.set(x, made);
    return made;
  };
  for (const sample of samples) row(sample).train = finite(sample[metric]);
  for (const evaluation of evaluations) row(evaluation).test = finite(evaluation[metric]);
  const ordered = [...rows].sort(([a], [b]) => a - b);
  return [ordered.map(([x]) => x), ordered.map(([, { train }]) => train), ordered.map(([, { test }]) => test)];
}

/**
 * Returns the time per step by its parts, summed for stacking: `[x, compute + exchange + data,
 * compute + exchange, compute]`, for the samples in which it was measured.
 */
export function phases(samples: readonly SampleView[], kind: XKind): uPlot.AlignedData {
  const points = samples.flatMap((sample) => {
    const { compute_ms: compute, exchange_ms: exchange, data_ms: data } = sample;
    if (compute === null || exchange === null || data === null) return [];
    return [{ x: kind === "step" ? sample.step : Date.parse(sample.at) / 1000, compute, exchange, data }];
  });
  if (kind === "time") points.sort((a, b) => a.x - b.x);
  return [
    points.map(({ x }) => x),
    points.map(({ compute, exchange, data }) => compute + exchange + data),
    points.map(({ compute, exchange }) => compute + exchange),
    points.map(({ compute }) => compute),
  ];
}

/**
 * Returns the gradient noise scale and the examples per update: `[x, noise scale, batch]`, for the
 * samples in which it was measured.
 */
export function noise(samples: readonly SampleView[], kind: XKind): uPlot.AlignedData {
  const points = samples.filter(
    ({ noise_scale: scale }) => typeof scale === "number" && Number.isFinite(scale) && scale > 0,
  );
  if (kind === "time") points.sort((a, b) => Date.parse(a.at) - Date.parse(b.at));
  return [
    points.map((sample) => (kind === "step" ? sample.step : Date.parse(sample.at) / 1000)),
    points.map((sample) => sample.noise_scale ?? null),
    points.map(batch),
  ];
}

/** Rates and gain of a sample, or of the newest sample of a job. */
type Rates = Pick<SampleView, "examples_per_s" | "gain"> & { steps_per_s: number | null };

/** Returns the examples per update over all workers; null without an update. */
export function batch({ examples_per_s: examples, steps_per_s: steps, gain }: Rates): number | null {
  return steps !== null && steps > 0 && examples !== null ? (examples / steps) * (gain ?? 1) : null;
}

/** Returns `[seconds, workers, shards]` for stepped lines. */
export function sizes(points: readonly SizePoint[]): uPlot.AlignedData {
  return [
    points.map((point) => point.atMs / 1000),
    points.map((point) => point.workers),
    points.map((point) => point.psShards),
  ];
}

/** Removes NaN and infinity of a diverged training, which would make the whole axis empty. */
function finite(value: number | null): number | null {
  return value !== null && Number.isFinite(value) ? value : null;
}
