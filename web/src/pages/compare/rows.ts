// Rows of a comparison of jobs: fields of the documents, results and metrics. Pure.
import type { JobView, MetricView } from "../../api/types";
import { isTerminal } from "../../live/job";
import { ownFields } from "../submit/fork";
import { duration } from "../../words/time";
import { loss, percent, rate, splitName } from "../../words/number";

/** A compared value per job; null for a job without it. */
export interface Row {
  name: string;
  values: (string | null)[];
}

/** A field of the documents, whose values may differ although their texts are equal. */
export interface FieldRow extends Row {
  differs: boolean;
}

/** Returns the fields of the documents, in alphabetical order of their paths. */
export function fields(jobs: readonly JobView[]): FieldRow[] {
  const rows = new Map<string, unknown[]>();
  jobs.forEach((job, place) => {
    for (const [path, value] of leaves("", ownFields(job.spec))) {
      const values = rows.get(path) ?? jobs.map(() => null);
      values[place] = value;
      rows.set(path, values);
    }
  });
  const found = [...rows].map(([name, values]) => ({
    name,
    values: values.map(textOf),
    differs: new Set(values.map((value) => JSON.stringify(value))).size > 1,
  }));
  return found.sort((a, b) => (a.name < b.name ? -1 : 1));
}

function textOf(value: unknown): string | null {
  if (value === null || value === undefined) return null;
  if (Array.isArray(value)) return value.map(String).join(" ");
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** Returns each value of a document with its path. A list of plain values is one value. */
function leaves(path: string, value: unknown): [string, unknown][] {
  if (value === null || value === undefined) return [];
  if (Array.isArray(value)) {
    const isPlain = value.every((item) => typeof item !== "object" || item === null);
    if (isPlain) return [[path, value]];
    return value.flatMap((item, index) => leaves(`${path}[${index}]`, item));
  }
  if (typeof value === "object") {
    return Object.entries(value).flatMap(([name, item]) => leaves(path === "" ? name : `${path}.${name}`, item));
  }
  return [[path, value]];
}

/** Returns the results that at least one job has. */
export function results(jobs: readonly JobView[]): Row[] {
  const row = (name: string, value: (job: JobView) => string | null): Row => ({ name, values: jobs.map(value) });
  const known = <T>(value: T | null | undefined, text: (value: T) => string) =>
    value === null || value === undefined ? null : text(value);
  const rows = [
    row("phase", (job) => job.phase),
    row("failure", (job) => job.failure),
    row("workers", (job) => (isTerminal(job.phase) ? null : String(job.workers.running))),
    row("run time", runTime),
    row("step", (job) => known(job.progress?.step, String)),
    row("steps per second", (job) => known(job.progress?.steps_per_s, rate)),
    row("train loss", (job) => known(job.progress?.loss, loss)),
    row("train accuracy", (job) => known(job.progress?.accuracy, (value) => percent(value, 2))),
    row("evaluation loss", (job) => known(job.progress?.test_loss, (value) => `${splitOf(job)} ${loss(value)}`)),
    row("evaluation accuracy", (job) =>
      known(job.progress?.test_accuracy, (value) => `${splitOf(job)} ${percent(value, 2)}`),
    ),
  ];
  return rows.filter(({ values }) => values.some((value) => value !== null));
}

function splitOf(job: JobView): string {
  return splitName(job.progress?.evaluated_on);
}

/** Returns the time from the first start to the end, null before the end. */
function runTime({ started_at: start, finished_at: end }: JobView): string | null {
  if (start === null || end === null) return null;
  return duration((Date.parse(end) - Date.parse(start)) / 1000);
}

/** Returns all names of metrics of the jobs, those that most jobs have first. */
export function metricNames(lists: readonly (readonly MetricView[])[]): string[] {
  const counts = new Map<string, number>();
  for (const list of lists) for (const { name } of list) counts.set(name, (counts.get(name) ?? 0) + 1);
  return [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).map(([name]) => name);
}
