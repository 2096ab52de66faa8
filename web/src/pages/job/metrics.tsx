// All metrics that the job's program has logged: a choice by name, and a chart of each chosen one.
import { useMemo } from "react";
import { useSearchParams } from "react-router";
import { metricPoints, metrics, metricsFile } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { JobView, MetricView } from "../../api/types";
import { groups } from "../../charts/metric";
import { MetricChart } from "../../charts/metric-chart";
import { isTerminal } from "../../live/job";
import { FileButton } from "../../ui/file-button";
import { Panel } from "../../ui/panel";
import { usePoll } from "../../ui/poll";
import { Empty, Failure, Loading } from "../../ui/states";
import { plural } from "../../words/number";

/** The job's stream has no metrics. */
const RELOAD_EVERY_MS = 5000;
/** Number of charts without a choice, and at most. */
const FIRST = 4;
const MOST = 10;

interface Choice {
  names: string[];
  smoothing: number;
  log: boolean;
}

export function Metrics({ job }: { job: JobView }) {
  const list = useResource(job.id, (signal) => metrics(job.id, signal));
  const [choice, choose] = useChoice(list.data ?? []);
  const key = JSON.stringify([job.id, choice.names]);
  const series = useResource(list.data === null ? null : key, (signal) => metricPoints(job.id, choice.names, signal));
  usePoll(isTerminal(job.phase) ? 0 : RELOAD_EVERY_MS, () => {
    list.reload();
    series.reload();
  });
  if (list.error !== null) return <Failure error={list.error} retry={list.reload} />;
  if (list.data === null) return <Loading label="Loading the metrics" rows={6} />;
  if (list.data.length === 0) return <NoMetrics job={job} />;
  return (
    <Panel title="Metrics" aside={<Controls job={job} choice={choice} onChange={choose} />} className="metrics">
      <div className="metrics-body">
        <Names all={list.data} choice={choice} onChange={choose} />
        <div className="charts">
          {series.error === null ? null : <Failure error={series.error} retry={series.reload} />}
          {series.loading ? <Loading label="Loading the charts" rows={6} /> : null}
          {(series.data ?? []).map((one) => (
            <MetricChart
              key={one.name}
              series={one}
              smoothing={choice.smoothing}
              log={choice.log}
              group={`metrics ${job.id}`}
            />
          ))}
        </div>
      </div>
    </Panel>
  );
}

function NoMetrics({ job }: { job: JobView }) {
  return (
    <Panel title="Metrics">
      <Empty title="No metrics yet">
        <p>
          {job.spec.command == null
            ? "The built-in engine has only the curves of the overview."
            : "Each name that the program logs to MLFLOW_TRACKING_URI, or prints in a line such as “muster: step=10 f1=0.8”, becomes a metric."}
        </p>
      </Empty>
    </Panel>
  );
}

interface ChoiceProps {
  choice: Choice;
  onChange: (choice: Choice) => void;
}

function Controls({ job, choice, onChange }: ChoiceProps & { job: JobView }) {
  return (
    <div className="metrics-controls">
      <label className="check">
        Smoothing
        <input
          type="range"
          min={0}
          max={0.99}
          step={0.01}
          value={choice.smoothing}
          onChange={(event) => onChange({ ...choice, smoothing: Number(event.target.value) })}
        />
        <span className="num metrics-smoothing">{choice.smoothing.toFixed(2)}</span>
      </label>
      <label className="check">
        <input
          type="checkbox"
          checked={choice.log}
          onChange={(event) => onChange({ ...choice, log: event.target.checked })}
        />{" "}
        Logarithmic
      </label>
      <FileButton
        load={() => metricsFile(job.id)}
        name={`${job.name}-metrics.csv`}
        title="All points of all metrics as CSV"
      >
        CSV
      </FileButton>
    </div>
  );
}

function Names({ all, choice, onChange }: ChoiceProps & { all: readonly MetricView[] }) {
  const grouped = useMemo(() => groups(all.map(({ name }) => name)), [all]);
  const toggle = (name: string, chosen: boolean) => {
    const others = choice.names.filter((other) => other !== name);
    onChange({ ...choice, names: chosen ? [...others, name] : others });
  };
  const isFull = choice.names.length >= MOST;
  return (
    <div className="metrics-names">
      <p className="muted">
        {plural(choice.names.length, "chart")} of {plural(all.length, "metric")}
        {isFull ? `, the most at once` : ""}
      </p>
      {grouped.map(({ prefix, names }) => (
        <fieldset key={prefix}>
          <legend className={prefix === "" ? "sr-only" : ""}>{prefix === "" ? "without a group" : `${prefix}/`}</legend>
          {names.map((name) => {
            const chosen = choice.names.includes(name);
            return (
              <label key={name} className="check" title={name}>
                <input
                  type="checkbox"
                  checked={chosen}
                  disabled={!chosen && isFull}
                  onChange={(event) => toggle(name, event.target.checked)}
                />
                <span>{prefix === "" ? name : name.slice(prefix.length + 1)}</span>
              </label>
            );
          })}
        </fieldset>
      ))}
    </div>
  );
}

/** The choice is part of the address, so that a link shows the same charts. */
function useChoice(all: readonly MetricView[]): [Choice, (choice: Choice) => void] {
  const [params, setParams] = useSearchParams();
  const given = params.getAll("metric");
  const smoothing = Number(params.get("smoothing") ?? 0);
  const choice = {
    names:
      given.length > 0
        ? given.filter((name) => name !== "").slice(0, MOST)
        : all.slice(0, FIRST).map(({ name }) => name),
    smoothing: smoothing >= 0 && smoothing <= 0.99 ? smoothing : 0,
    log: params.get("scale") === "log",
  };
  const choose = ({ names, smoothing: weight, log }: Choice) => {
    const next = new URLSearchParams(params);
    for (const key of ["metric", "smoothing", "scale"]) next.delete(key);
    // An empty name is the choice of none.
    for (const name of names.length > 0 ? names : [""]) next.append("metric", name);
    if (weight > 0) next.set("smoothing", String(weight));
    if (log) next.set("scale", "log");
    setParams(next, { replace: true });
  };
  return [choice, choose];
}
