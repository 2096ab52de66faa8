// All jobs of the tenant, newest first, live.
import { useCallback, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { jobs } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { JobView } from "../../api/types";
import { foldEvent, foldSample } from "../../live/job";
import { useLive } from "../../live/feed";
import type { LiveMessage } from "../../live/messages";
import { Icon } from "../../ui/icon";
import { useMe } from "../../ui/me";
import { Empty, Failure, Loading } from "../../ui/states";
import { Tiles } from "../../ui/tiles";
import { useTitle } from "../../ui/title";
import { FilterBar } from "./filters";
import { isFiltered, readFilters, writeFilters, type Filters } from "./query";
import { Selection } from "./selection";
import { JobTable } from "./table";

const PER_PAGE = 50;

export function JobsPage() {
  useTitle("Jobs");
  const [params, setParams] = useSearchParams();
  const filters = readFilters(params);
  const { user } = useMe();
  const [chosen, choose] = useState<ReadonlySet<string>>(new Set());
  const query = {
    phase: filters.phases,
    label: filters.label,
    name: filters.name,
    ...(filters.mine ? { user } : {}),
    ...(filters.trials ? {} : { trials: false }),
    limit: PER_PAGE,
    continue: filters.page,
  };
  const list = useResource(JSON.stringify(query), (signal) => jobs(query, signal));
  const { data, update, reload } = list;
  const onMessage = useCallback(
    (message: LiveMessage) => {
      update((page) => ({ ...page, items: page.items.map((job) => folded(job, message)) }));
      if (changesList(message, data?.items ?? [])) reload();
    },
    [data, update, reload],
  );
  useLive(onMessage, reload);
  const change = (next: Omit<Filters, "page">) => setParams(writeFilters(next), { replace: true });

  return (
    <div className="page">
      <div className="page-head">
        <h1>Jobs</h1>
        <Link to="/submit" className="button button-primary">
          <Icon name="submit" /> Submit a job
        </Link>
      </div>
      <Tiles />
      <FilterBar filters={filters} onChange={change} />
      {list.error !== null && list.data === null ? <Failure error={list.error} retry={list.reload} /> : null}
      {list.loading ? <Loading label="Loading jobs" rows={8} /> : null}
      {list.data === null ? null : list.data.items.length === 0 ? (
        <NoJobs filtered={isFiltered(filters)} later={filters.page !== null} />
      ) : (
        <>
          <Selection jobs={list.data.items} chosen={chosen} onChange={choose} />
          <JobTable jobs={list.data.items} chosen={chosen} onChoose={choose} />
        </>
      )}
      {list.data === null ? null : <Pager filters={filters} next={list.data.continue} />}
    </div>
  );
}

function folded(job: JobView, message: LiveMessage): JobView {
  if (message.kind === "event") return foldEvent(job, message.event);
  const newest = message.samples[message.samples.length - 1];
  return message.jobId === job.id && newest !== undefined ? foldSample(job, newest) : job;
}

/** Whether the list, its order or a sum may differ from the result of applying the event. */
function changesList(message: LiveMessage, shown: readonly JobView[]): boolean {
  // The total number of steps comes with the first sample, but only in the job's answer.
  if (message.kind === "progress") return shown.some((job) => job.id === message.jobId && job.progress === null);
  const { kind } = message.event.event;
  return kind === "job_submitted" || kind === "job_deleted" || kind === "job_state_changed";
}

function NoJobs({ filtered, later }: { filtered: boolean; later: boolean }) {
  if (filtered || later) {
    return (
      <Empty title="No job matches">
        <p>Clear a filter to see more.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No jobs yet">
      <p>
        <Link to="/submit">Submit one here</Link>, or from a terminal:{" "}
        <code>muster submit examples/fashion-cnn.yaml</code>
      </p>
    </Empty>
  );
}

function Pager({ filters, next }: { filters: Filters; next: string | null }) {
  if (filters.page === null && next === null) return null;
  return (
    <nav className="pager" aria-label="Pages of jobs">
      {filters.page === null ? null : (
        <Link className="button" to={{ search: writeFilters(filters).toString() }}>
          <Icon name="left" /> First page
        </Link>
      )}
      {next === null ? null : (
        <Link className="button" to={{ search: writeFilters(filters, next).toString() }}>
          Older jobs <Icon name="right" />
        </Link>
      )}
    </nav>
  );
}
