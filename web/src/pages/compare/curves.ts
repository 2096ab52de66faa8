// The curves that jobs can be compared by: metrics of programs, and the curve of the engine.
import { metricPoints, progress } from "../../api/calls";
import type { JobView, MetricSeries, Progress } from "../../api/types";
import type { OverlaidPoint } from "../../charts/overlay";

/** Curves of the built-in engine, which logs no metrics of other names. */
export const ENGINE_CURVES = ["train loss", "train accuracy", "evaluation loss", "evaluation accuracy"] as const;

/** Points of one job by the name of the curve. */
export type Curves = ReadonlyMap<string, readonly OverlaidPoint[]>;

/** Loads the named curves of a job; names that it does not have are left out. */
export async function curvesOf(job: JobView, names: readonly string[], signal: AbortSignal): Promise<Curves> {
  if (names.length === 0) return new Map();
  if (job.spec.command != null) return ofMetrics(await metricPoints(job.id, [...names], signal));
  return ofEngine(await progress(job.id, signal));
}

function ofMetrics(series: readonly MetricSeries[]): Curves {
  return new Map(series.map(({ name, points }) => [name, points.map(({ step, mean }) => ({ step, value: mean }))]));
}

export function ofEngine({ samples, evaluations }: Pick<Progress, "samples" | "evaluations">): Curves {
  const points = <T extends { step: number }>(items: readonly T[], value: (item: T) => number | null | undefined) =>
    items.flatMap((item) => {
      const found = value(item);
      return found === null || found === undefined ? [] : [{ step: item.step, value: found }];
    });
  const curves: [string, readonly OverlaidPoint[]][] = [
    ["train loss", points(samples, ({ loss }) => loss)],
    ["train accuracy", points(samples, ({ accuracy }) => accuracy)],
    ["evaluation loss", points(evaluations, ({ loss }) => loss)],
    ["evaluation accuracy", points(evaluations, ({ accuracy }) => accuracy)],
  ];
  return new Map(curves.filter(([, found]) => found.length > 0));
}
