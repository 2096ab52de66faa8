// The tasks of a job: node, GPUs and end of each.
import { useMemo, useState } from "react";
import { Link } from "react-router";
import type { Resource } from "../../api/resource";
import type { StoredEvent, TaskView } from "../../api/types";
import { useNow } from "../../ui/now";
import { Empty, Failure, Loading } from "../../ui/states";
import { isClean } from "../../words/event";
import { idleText } from "../../words/idle";
import { bytes } from "../../words/number";
import { isLeaving } from "../../words/resize";
import { clock, duration, instant } from "../../words/time";

interface Props {
  resource: Resource<TaskView[]>;
  revision: number;
  /** The job's history, with verdicts on tasks that delayed the others. */
  events: readonly StoredEvent[];
}

export function Tasks({ resource, revision, events }: Props) {
  const [all, setAll] = useState(false);
  const now = useNow();
  const judged = useMemo(() => verdictsOf(events), [events]);
  if (resource.error !== null) return <Failure error={resource.error} retry={resource.reload} />;
  if (resource.data === null) return <Loading label="Loading tasks" />;
  if (resource.data.length === 0) return <Empty title="It has no tasks yet">They come with its first start.</Empty>;
  // A task that leaves in a resize belongs to an earlier revision and still exists.
  const present = (task: TaskView) => task.revision === revision || isLeaving(task, revision);
  const shown = resource.data.filter((task) => all || present(task)).sort(byNewest);
  const older = resource.data.filter((task) => !present(task)).length;
  return (
    <>
      {older > 0 ? (
        <label className="check">
          <input type="checkbox" checked={all} onChange={(event) => setAll(event.target.checked)} /> Show {older} of
          earlier revisions
        </label>
      ) : null}
      <div className="table-wrap">
        <table className="table cards">
          <caption className="sr-only">Tasks</caption>
          <thead>
            <tr>
              <th scope="col">Task</th>
              <th scope="col" className="right">
                Revision
              </th>
              <th scope="col">Node</th>
              <th scope="col">GPUs</th>
              <th scope="col">State</th>
              <th scope="col" className="right" title="What a step takes it by itself, waiting for others not counted">
                Own step
              </th>
              <th scope="col">Outcome</th>
              <th scope="col" className="right">
                Since
              </th>
              <th scope="col" className="right">
                Held
              </th>
              <th scope="col">
                <span className="sr-only">Logs</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((task) => (
              <TaskRow
                key={task.id}
                task={task}
                verdict={judged.get(task.id)}
                leaving={isLeaving(task, revision)}
                now={now}
              />
            ))}
          </tbody>
        </table>
      </div>
    </>
  );
}

/** Returns the newest verdict on each task that delayed the others. */
function verdictsOf(events: readonly StoredEvent[]): Map<string, StoredEvent> {
  return new Map(
    events.flatMap((stored) =>
      stored.event.kind === "rank_judged" ? [[stored.event.verdict.task_id, stored] as const] : [],
    ),
  );
}

function TaskRow({
  task,
  verdict,
  leaving,
  now,
}: {
  task: TaskView;
  verdict: StoredEvent | undefined;
  leaving: boolean;
  now: number;
}) {
  const { state } = task;
  const end = task.released_at === null ? now : Date.parse(task.released_at);
  return (
    <tr>
      <th scope="row" title={task.id}>
        {task.name}
      </th>
      <td className="right num" data-label="Revision">
        {task.revision}
      </td>
      <td data-label="Node">{task.node}</td>
      <td className="num" data-label="GPUs">
        {task.gpus.length === 0 ? <span className="muted">none</span> : task.gpus.join(", ")}
      </td>
      <td data-label="State">
        <span className="phase" data-phase={state.phase}>
          <span className="phase-dot" aria-hidden="true" />
          {leaving ? "leaving" : state.phase}
        </span>
        {task.shared_with === undefined || task.shared_with === null ? null : (
          <p className="note" title={use(task)}>
            beside <Link to={`/jobs/${task.shared_with}`}>another job</Link>
            {typeof task.rate_beside === "number"
              ? `, at ${Math.round(100 * task.rate_beside)} % of its rate alone`
              : null}
          </p>
        )}
        {task.idle === undefined || task.idle === null ? null : <p className="note">{idleText(task.idle)}</p>}
        {verdict === undefined ? null : (
          <p className="note note-bad" title={verdict.detail ?? undefined}>
            {verdict.message}
          </p>
        )}
      </td>
      <td className="right num" data-label="Own step">
        <Pace task={task} now={now} />
      </td>
      <td data-label="Outcome">
        {state.phase === "released" ? (
          <span className={isClean(state.outcome) ? "muted" : "bad"}>{task.outcome}</span>
        ) : (
          <span className="muted">–</span>
        )}
      </td>
      <td className="right num" data-label="Since" title={instant(task.created_at)}>
        {clock(task.created_at, now)}
      </td>
      <td className="right num" data-label="Held">
        {duration((end - Date.parse(task.created_at)) / 1000)}
      </td>
      <td className="right">
        <Link to={{ search: new URLSearchParams({ tab: "logs", task: task.id }).toString() }} replace>
          Logs<span className="sr-only"> of {task.name}</span>
        </Link>
      </td>
    </tr>
  );
}

/** Returns the measured use of the task's GPU or slot. */
function use({ usage }: TaskView): string {
  const parts = [
    typeof usage?.peak_bytes === "number" ? `${bytes(usage.peak_bytes)} of memory at most` : null,
    typeof usage?.busy_alone === "number" ? `busy ${Math.round(100 * usage.busy_alone)} % of the time alone` : null,
  ];
  return parts.filter((part) => part !== null).join(", ");
}

/** Shows a worker's reported pace, and whether it delays the others. */
function Pace({ task: { pace }, now }: { task: TaskView; now: number }) {
  if (pace === undefined || pace === null) return <span className="muted">–</span>;
  const heard = `Step ${pace.step}, ${pace.doing}; heard ${duration((now - Date.parse(pace.heard_at)) / 1000)} ago`;
  return (
    <>
      <span title={heard}>{pace.own_ms === null ? "not reported" : `${pace.own_ms.toFixed(1)} ms`}</span>
      {pace.of_median === null ? null : (
        <p className={pace.suspected === null ? "note" : "note note-bad"}>
          {Math.round(100 * pace.of_median)} % of the median rate
        </p>
      )}
      {pace.suspected === null ? null : (
        <p className="note note-bad">
          Looks {pace.suspected.of === "hang" ? "hung" : "like a straggler"} for{" "}
          {duration((now - Date.parse(pace.suspected.since)) / 1000)}
        </p>
      )}
    </>
  );
}

/** Orders by newest revision, then workers before shards, each by number. */
export function byNewest(a: TaskView, b: TaskView): number {
  return b.revision - a.revision || order(a) - order(b);
}

function order({ role }: TaskView): number {
  return role.kind === "worker" ? role.rank : 1_000_000 + role.index;
}
