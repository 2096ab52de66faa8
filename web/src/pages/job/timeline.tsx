// Events of the job, newest first.
import { useMemo, useState } from "react";
import type { Resource } from "../../api/resource";
import type { StoredEvent } from "../../api/types";
import { useNow } from "../../ui/now";
import { Empty, Failure, Loading } from "../../ui/states";
import { detailLine, tone } from "../../words/event";
import { clock, instant } from "../../words/time";

const AT_ONCE = 200;

export function Timeline({ resource }: { resource: Resource<StoredEvent[]> }) {
  // A long job writes hundreds of checkpoints, which would hide the scheduler's decisions.
  const [quiet, setQuiet] = useState(false);
  const [limit, setLimit] = useState(AT_ONCE);
  const now = useNow(10_000);
  const shown = useMemo(
    () =>
      (resource.data ?? [])
        .map((stored) => ({ stored, tone: tone(stored.event), detail: detailLine(stored) }))
        .filter(({ tone }) => quiet || tone !== "quiet")
        .reverse(),
    [resource.data, quiet],
  );
  if (resource.error !== null) return <Failure error={resource.error} retry={resource.reload} />;
  if (resource.data === null) return <Loading label="Loading events" />;
  if (resource.data.length === 0) return <Empty title="Nothing has happened yet" />;
  return (
    <>
      <label className="check">
        <input type="checkbox" checked={quiet} onChange={(event) => setQuiet(event.target.checked)} /> Show routine
        events: starts and stops of tasks, tests, checkpoints
      </label>
      <ol className="timeline">
        {shown.slice(0, limit).map(({ stored, tone, detail }) => (
          <li key={stored.cursor} data-tone={tone}>
            <time className="num" dateTime={stored.at} title={instant(stored.at)}>
              {clock(stored.at, now)}
            </time>
            <span className="timeline-dot" aria-hidden="true" />
            <div>
              <p>{stored.message}</p>
              {detail === null ? null : <p className="muted">{detail}</p>}
            </div>
          </li>
        ))}
      </ol>
      {shown.length > limit ? (
        <button type="button" className="button" onClick={() => setLimit(limit + AT_ONCE)}>
          Show {Math.min(AT_ONCE, shown.length - limit)} older
        </button>
      ) : null}
    </>
  );
}
