// A resize in place that is under way, as people read it: who comes and who goes while the others train on.
import type { JobView, TaskView } from "../api/types";
import { plural } from "./number";

/** A task that was told to stop while its job goes on, and that still holds what it was given. */
export function isLeaving(task: TaskView, revision: number): boolean {
  return task.revision < revision && task.released_at === null;
}

/** `null` while nothing changes its size. A job that only starts has a phase of its own. */
export function resizeSentence(job: JobView, tasks: readonly TaskView[]): string | null {
  if (job.phase !== "running") return null;
  const joining = tasks.filter((task) => task.revision === job.revision && task.state.phase === "assigned");
  const leaving = tasks.filter((task) => isLeaving(task, job.revision));
  const parts = [told(joining, "joins", "join"), told(leaving, "leaves", "leave")].filter((part) => part !== null);
  return parts.length === 0 ? null : `Resizing: ${parts.join(", ")}. The others train on.`;
}

function told(tasks: readonly TaskView[], one: string, many: string): string | null {
  const workers = tasks.filter((task) => task.role.kind === "worker").length;
  const shards = tasks.length - workers;
  const named = [workers > 0 ? plural(workers, "worker") : null, shards > 0 ? plural(shards, "PS shard") : null].filter((part) => part !== null);
  return named.length === 0 ? null : `${named.join(" and ")} ${tasks.length === 1 ? one : many}`;
}
