// The page of one job: its work, the reason for its state, and its results.
import { useEffect, useState } from "react";
import { Link, useParams, useSearchParams } from "react-router";
import { isGone } from "../../api/problem";
import { Panel } from "../../ui/panel";
import { Empty, Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { toYaml } from "../../words/document";
import { resizeSentence } from "../../words/resize";
import { Artifacts } from "./artifacts";
import { Checkpoints } from "./checkpoints";
import { Curves } from "./curves";
import { LastOutput } from "./failed";
import { JobHead } from "./head";
import { useJobData, type JobData } from "./load";
import { Logs } from "./logs";
import { Metrics } from "./metrics";
import { Tasks } from "./tasks";
import { Timeline } from "./timeline";
import { Why } from "./why";
import type { JobView, TaskView } from "../../api/types";

const TABS = ["overview", "metrics", "tasks", "logs", "events", "checkpoints", "artifacts", "spec"] as const;
type Tab = (typeof TABS)[number];

export function JobPage() {
  const { id = "" } = useParams();
  return <OneJob key={id} id={id} />;
}

function OneJob({ id }: { id: string }) {
  const data = useJobData(id);
  const [deleted, setDeleted] = useState(false);
  const { job } = data;
  useTitle(job.data === null ? "Job" : job.data.name);
  if (deleted) {
    return (
      <Empty title="The job is deleted">
        <p>
          Back to the <Link to="/jobs">list of jobs</Link>.
        </p>
      </Empty>
    );
  }
  if (isGone(job.error)) {
    // A user that has seen the job had access to it.
    const meanwhile = job.data !== null;
    return (
      <Empty title={meanwhile ? "The job was deleted" : "There is no such job"}>
        <p>
          {meanwhile
            ? "It was deleted while this page was open."
            : "It may have been deleted, or belong to another tenant."}{" "}
          Back to the <Link to="/jobs">list of jobs</Link>.
        </p>
      </Empty>
    );
  }
  if (job.data === null)
    return job.error === null ? (
      <Loading label="Loading the job" rows={8} />
    ) : (
      <Failure error={job.error} retry={job.reload} />
    );
  return (
    <div className="page">
      <JobHead job={job.data} onChanged={job.reload} onDeleted={() => setDeleted(true)} />
      <Resizing job={job.data} tasks={data.tasks.data ?? []} />
      <Tabs job={job.data} data={data} />
    </div>
  );
}

function Resizing({ job, tasks }: { job: JobView; tasks: TaskView[] }) {
  const sentence = resizeSentence(job, tasks);
  return (
    <p className="resizing" role="status">
      {sentence}
    </p>
  );
}

function Tabs({ job, data }: { job: JobView; data: JobData }) {
  const [params, setParams] = useSearchParams();
  const wanted = params.get("tab");
  const tab = TABS.find((known) => known === wanted) ?? "overview";
  const counts: Partial<Record<Tab, number>> = {};
  if (data.tasks.data !== null) counts.tasks = data.tasks.data.filter((task) => task.revision === job.revision).length;
  if (data.checkpoints.data !== null) counts.checkpoints = data.checkpoints.data.filter((one) => one.retained).length;
  // On a narrow screen the tabs scroll; the selected one is scrolled into view.
  useEffect(() => {
    const chosen = document.getElementById(`tab-${tab}`);
    const row = chosen?.parentElement;
    if (chosen === null || row === null || row === undefined) return;
    const end = chosen.offsetLeft + chosen.offsetWidth - row.offsetLeft;
    row.scrollLeft = Math.max(0, end - row.clientWidth);
  }, [tab, counts.tasks, counts.checkpoints]);
  const choose = (next: Tab) => {
    // The choice of metrics stays.
    const kept = new URLSearchParams(params);
    kept.delete("tab");
    if (next !== "overview") kept.set("tab", next);
    setParams(kept, { replace: true });
  };
  const onKey = (event: React.KeyboardEvent) => {
    const move = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (move === 0) return;
    event.preventDefault();
    const next = TABS[(TABS.indexOf(tab) + move + TABS.length) % TABS.length] ?? "overview";
    choose(next);
    document.getElementById(`tab-${next}`)?.focus();
  };
  return (
    <>
      <div className="tabs" role="tablist" aria-label="Parts of the job">
        {TABS.map((name) => (
          <button
            key={name}
            id={`tab-${name}`}
            type="button"
            role="tab"
            aria-selected={name === tab}
            aria-controls="tab-panel"
            tabIndex={name === tab ? 0 : -1}
            onClick={() => choose(name)}
            onKeyDown={onKey}
          >
            {name.charAt(0).toUpperCase() + name.slice(1)}
            {counts[name] === undefined ? null : <span className="tab-count num">{counts[name]}</span>}
          </button>
        ))}
      </div>
      <div id="tab-panel" role="tabpanel" aria-labelledby={`tab-${tab}`} className="tab-panel">
        <Body tab={tab} job={job} data={data} />
      </div>
    </>
  );
}

/** Whether a job failed before its first step, so that its output says more than empty curves. */
function hasNoCurves(job: JobView, data: JobData): boolean {
  return job.phase === "failed" && job.progress === null && (data.tasks.data ?? []).length > 0;
}

function Body({ tab, job, data }: { tab: Tab; job: JobView; data: JobData }) {
  switch (tab) {
    case "overview":
      return (
        <div className="overview">
          <Why
            job={job}
            events={data.events.data ?? []}
            explanation={data.explanation.data}
            accuracy={data.accuracy.data}
          />
          <div className="overview-main">
            <LastOutput job={job} tasks={data.tasks.data ?? []} />
            {hasNoCurves(job, data) ? null : <Curves job={job} data={data} />}
          </div>
        </div>
      );
    case "metrics":
      return <Metrics job={job} />;
    case "tasks":
      return <Tasks resource={data.tasks} revision={job.revision} events={data.events.data ?? []} />;
    case "logs":
      return <Logs jobId={job.id} tasks={data.tasks} revision={job.revision} />;
    case "events":
      return <Timeline resource={data.events} />;
    case "checkpoints":
      return <Checkpoints job={job} resource={data.checkpoints} />;
    case "artifacts":
      return <Artifacts job={job} />;
    case "spec":
      return (
        <Panel title="Job document" className="panel-flush">
          <pre className="document">{toYaml(job.spec)}</pre>
        </Panel>
      );
  }
}
