// Two to eight jobs side by side: what differs in their documents, their results and their curves.
import { useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import { job, metrics } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { JobView, MetricView } from "../../api/types";
import { OverlayChart, type JobCurve } from "../../charts/overlay-chart";
import { isTerminal } from "../../live/job";
import { Panel } from "../../ui/panel";
import { usePoll } from "../../ui/poll";
import { Empty, Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { plural } from "../../words/number";
import { curvesOf, ENGINE_CURVES } from "./curves";
import { MOST_JOBS } from "./limit";
import { fields, metricNames, results, type Row } from "./rows";

const RELOAD_EVERY_MS = 5000;
/** Number of charts without a choice, and at most. */
const FIRST_CHARTS = 4;
const MOST_CHARTS = 10;
const SHORT_ID = 8;

interface Compared {
  jobs: JobView[];
  metrics: MetricView[][];
}

export function ComparePage() {
  useTitle("Compare");
  const [params] = useSearchParams();
  const ids = [...new Set(params.getAll("job"))].slice(0, MOST_JOBS);
  const key = ids.length < 2 ? null : ids.join(" ");
  const loaded = useResource<Compared>(key, async (signal) => {
    const [found, lists] = await Promise.all([
      Promise.all(ids.map((id) => job(id, signal))),
      Promise.all(ids.map((id) => metrics(id, signal))),
    ]);
    return { jobs: found, metrics: lists };
  });
  const hasOpen = loaded.data?.jobs.some(({ phase }) => !isTerminal(phase)) ?? false;
  usePoll(hasOpen ? RELOAD_EVERY_MS : 0, loaded.reload);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Compare</h1>
        <Link to="/jobs" className="button">
          Choose jobs
        </Link>
      </div>
      {key === null ? (
        <Empty title="Choose at least two jobs">
          <p>
            Mark jobs in <Link to="/jobs">the list</Link>, or use <code>muster diff JOB JOB</code>.
          </p>
        </Empty>
      ) : loaded.data === null ? (
        loaded.error === null ? (
          <Loading label="Loading the jobs" rows={6} />
        ) : (
          <Failure error={loaded.error} retry={loaded.reload} />
        )
      ) : (
        <Comparison compared={loaded.data} />
      )}
    </div>
  );
}

function Comparison({ compared }: { compared: Compared }) {
  const { jobs } = compared;
  const rows = useMemo(() => fields(jobs), [jobs]);
  const differing = rows.filter(({ differs }) => differs);
  const equal = rows.length - differing.length;
  return (
    <>
      <ul className="compare-jobs">
        {jobs.map((one, place) => (
          <li key={one.id}>
            <span className="compare-swatch" data-job={place} aria-hidden="true" />
            <Link to={`/jobs/${one.id}`}>{one.name}</Link>
            <span className="muted">{shortId(one)}</span>
          </li>
        ))}
      </ul>
      <Charts compared={compared} />
      <Panel title="Results">
        <Table rows={results(jobs)} jobs={jobs} head="Result" />
      </Panel>
      <Panel title="Documents" aside={<span className="muted">{plural(equal, "equal field")} left out</span>}>
        {differing.length === 0 ? <p>The documents are equal.</p> : <Table rows={differing} jobs={jobs} head="Field" />}
      </Panel>
    </>
  );
}

function shortId({ id }: JobView): string {
  return id.replaceAll("-", "").slice(-SHORT_ID);
}

function Table({ rows, jobs, head }: { rows: readonly Row[]; jobs: readonly JobView[]; head: string }) {
  return (
    <div className="table-wrap">
      <table className="table compare-table">
        <thead>
          <tr>
            <th scope="col">{head}</th>
            {jobs.map((one, place) => (
              <th key={one.id} scope="col">
                <span className="compare-swatch" data-job={place} aria-hidden="true" /> {one.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ name, values }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {values.map((value, place) => (
                <td key={jobs[place]?.id ?? place}>{value ?? <span className="muted">–</span>}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Charts({ compared: { jobs, metrics: lists } }: { compared: Compared }) {
  const [params, setParams] = useSearchParams();
  const hasEngine = jobs.some(({ spec }) => spec.command == null);
  const all = useMemo(() => [...(hasEngine ? ENGINE_CURVES : []), ...metricNames(lists)], [hasEngine, lists]);
  const given = params.getAll("metric").filter((name) => all.includes(name));
  const names = given.length > 0 ? given.slice(0, MOST_CHARTS) : all.slice(0, FIRST_CHARTS);
  const smoothing = Math.min(Math.max(Number(params.get("smoothing")) || 0, 0), 0.99);
  const log = params.get("scale") === "log";
  const key = JSON.stringify([jobs.map(({ id }) => id), names]);
  const curves = useResource(names.length === 0 ? null : key, (signal) =>
    Promise.all(jobs.map((one) => curvesOf(one, names, signal))),
  );
  const { reload } = curves;
  usePoll(jobs.some(({ phase }) => !isTerminal(phase)) ? RELOAD_EVERY_MS : 0, reload);
  const change = (key: string, values: readonly string[]) => {
    const next = new URLSearchParams(params);
    next.delete(key);
    for (const value of values) next.append(key, value);
    setParams(next, { replace: true });
  };
  if (all.length === 0) return null;
  const controls = (
    <div className="metrics-controls">
      <label className="check">
        Smoothing
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={smoothing}
          onChange={(event) => change("smoothing", event.target.value === "0" ? [] : [event.target.value])}
        />
        <span className="num metrics-smoothing">{smoothing.toFixed(2)}</span>
      </label>
      <label className="check">
        <input
          type="checkbox"
          checked={log}
          onChange={(event) => change("scale", event.target.checked ? ["log"] : [])}
        />{" "}
        Logarithmic
      </label>
    </div>
  );
  return (
    <Panel title="Curves" aside={controls} className="metrics">
      <div className="metrics-body">
        <fieldset className="metrics-names">
          <legend className="sr-only">Metrics</legend>
          {all.map((name) => (
            <label key={name} className="check" title={name}>
              <input
                type="checkbox"
                checked={names.includes(name)}
                disabled={names.includes(name) ? names.length === 1 : names.length >= MOST_CHARTS}
                onChange={(event) =>
                  change("metric", event.target.checked ? [...names, name] : names.filter((other) => other !== name))
                }
              />
              <span>{name}</span>
            </label>
          ))}
        </fieldset>
        <div className="charts">
          {curves.error === null ? null : <Failure error={curves.error} retry={curves.reload} />}
          {curves.data === null && curves.error === null ? <Loading label="Loading the curves" rows={6} /> : null}
          {names.map((name) => (
            <MetricOverlay key={name} name={name} jobs={jobs} all={curves.data ?? []} smoothing={smoothing} log={log} />
          ))}
        </div>
      </div>
    </Panel>
  );
}

interface OverlayProps {
  name: string;
  jobs: readonly JobView[];
  all: readonly ReadonlyMap<string, JobCurve["points"]>[];
  smoothing: number;
  log: boolean;
}

function MetricOverlay({ name, jobs, all, smoothing, log }: OverlayProps) {
  const curves = useMemo(
    () =>
      jobs.flatMap((one, place): JobCurve[] => {
        const points = all[place]?.get(name);
        return points === undefined ? [] : [{ place, name: one.name, points }];
      }),
    [name, jobs, all],
  );
  if (curves.length === 0) return null;
  return <OverlayChart metric={name} curves={curves} smoothing={smoothing} log={log} />;
}
