// Text about a resize in place in progress: joining and leaving tasks while the others continue.
import type { JobView, TaskView } from "../api/types";
import { plural } from "./number";

/** A task that was ordered to stop while its job continues, and that still holds its resources. */
export function isLeaving(task: TaskView, revision: number): boolean {
  return task.revision < revision && task.released_at === null;
}

/** Returns `null` without a change of size. A starting job has its own phase. */
export function resizeSentence(job: JobView, tasks: readonly TaskView[]): string | null {
  if (job.phase !== "running") return null;
  const joining = tasks.filter((task) => task.revision === job.revision && task.state.phase === "assigned");
  const leaving = tasks.filter((task) => isLeaving(task, job.revision));
  const parts = [told(joining, "joins", "join"), told(leaving, "leaves", "leave")].filter((part) => part !== null);
  return parts.length === 0 ? null : `Resizing: ${parts.join(", ")}. The others continue.`;
}

function told(tasks: readonly TaskView[], one: string, many: string): string | null {
  const workers = tasks.filter((task) => task.role.kind === "worker").length;
  const shards = tasks.length - workers;
  const named = [workers > 0 ? plural(workers, "worker") : null, shards > 0 ? plural(shards, "PS shard") : null].filter(
    (part) => part !== null,
  );
  return named.length === 0 ? null : `${named.join(" and ")} ${tasks.length === 1 ? one : many}`;
}
