// A task's log: its end, new output, and a search.
import { useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { useSearchParams } from "react-router";
import type { Resource } from "../../api/resource";
import type { TaskView } from "../../api/types";
import { Icon } from "../../ui/icon";
import { Empty, Failure, Loading } from "../../ui/states";
import { bytes, plural } from "../../words/number";
import { plain, terminalLines } from "../../words/terminal";
import { useLog } from "./log-feed";
import { TerminalLine } from "./terminal-line";
import { byNewest } from "./tasks";

const TAIL_BYTES = 256 * 1024;
/** Maximum number of lines on the page; more would slow it. The whole log can be downloaded. */
const SHOWN_LINES = 5000;

export function Logs({ jobId, tasks, revision }: { jobId: string; tasks: Resource<TaskView[]>; revision: number }) {
  const [params, setParams] = useSearchParams();
  if (tasks.error !== null) return <Failure error={tasks.error} retry={tasks.reload} />;
  if (tasks.data === null) return <Loading label="Loading tasks" />;
  const sorted = [...tasks.data].sort(byNewest);
  const chosen =
    sorted.find((task) => task.id === params.get("task")) ??
    sorted.find((task) => task.revision === revision) ??
    sorted[0];
  if (chosen === undefined) return <Empty title="No task has run yet">Logs begin with the first start.</Empty>;
  const picker = (
    <label className="field">
      <span className="sr-only">Task</span>
      <select
        value={chosen.id}
        onChange={(event) => setParams({ tab: "logs", task: event.target.value }, { replace: true })}
      >
        {sorted.map((task) => (
          <option key={task.id} value={task.id}>
            {task.name} · revision {task.revision} · {task.node} · {task.state.phase}
          </option>
        ))}
      </select>
    </label>
  );
  return <Log key={chosen.id} jobId={jobId} task={chosen} picker={picker} />;
}

function Log({ jobId, task, picker }: { jobId: string; task: TaskView; picker: React.ReactNode }) {
  const [follow, setFollow] = useState(true);
  const [search, setSearch] = useState("");
  const needle = useDeferredValue(search.trim().toLowerCase());
  const log = useLog(jobId, task.id, TAIL_BYTES);
  const box = useRef<HTMLDivElement>(null);
  const lines = useMemo(() => terminalLines(log.text).slice(-SHOWN_LINES), [log.text]);
  const shown = useMemo(
    () => (needle === "" ? lines : lines.map(plain).filter((line) => line.toLowerCase().includes(needle))),
    [lines, needle],
  );
  useLayoutEffect(() => {
    if (follow && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [follow, shown]);
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    // Scrolling up stops following. Scrolling to the end follows again.
    const onScroll = () => setFollow(element.scrollHeight - element.scrollTop - element.clientHeight < 24);
    element.addEventListener("scroll", onScroll, { passive: true });
    return () => element.removeEventListener("scroll", onScroll);
  }, []);
  return (
    <section className="log" aria-label="Log">
      <div className="log-bar">
        {picker}
        <label className="field-search">
          <span className="sr-only">Search in the log</span>
          <Icon name="search" />
          <input
            type="search"
            placeholder="Search"
            value={search}
            onChange={(event) => setSearch(event.target.value)}
            spellCheck={false}
          />
        </label>
        <label className="check">
          <input type="checkbox" checked={follow} onChange={(event) => setFollow(event.target.checked)} /> Follow
        </label>
        <span className="muted num log-count">
          {needle === "" ? plural(lines.length, "line") : `${shown.length} of ${plural(lines.length, "line")}`}
          {log.cut ? `, the last ${bytes(TAIL_BYTES)}` : ""}
        </span>
      </div>
      {log.error === null ? null : <Failure error={log.error} />}
      <div
        className="log-text"
        ref={box}
        role="log"
        // A region that scrolls must be reachable by keyboard.
        // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex
        tabIndex={0}
        aria-label={`Log of ${task.name}`}
        aria-live="off"
      >
        {log.loading ? <Loading label="Loading the log" rows={6} /> : null}
        {!log.loading && log.text === "" ? <p className="muted">The task has written nothing yet.</p> : null}
        {shown.map((line, index) => (
          <div key={index} className="log-line">
            <Highlighted line={line} needle={needle} />
          </div>
        ))}
      </div>
    </section>
  );
}

function Highlighted({ line, needle }: { line: string; needle: string }) {
  if (needle === "") return <TerminalLine line={line} />;
  const parts: React.ReactNode[] = [];
  const lower = line.toLowerCase();
  let from = 0;
  for (let at = lower.indexOf(needle); at >= 0; at = lower.indexOf(needle, from)) {
    parts.push(line.slice(from, at), <mark key={at}>{line.slice(at, at + needle.length)}</mark>);
    from = at + needle.length;
  }
  return (
    <>
      {parts}
      {line.slice(from)}
    </>
  );
}
