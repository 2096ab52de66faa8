// What can be done with the chosen jobs of the list: compare them, or cancel the open ones.
import { useState } from "react";
import { Link } from "react-router";
import { act } from "../../api/calls";
import type { JobView } from "../../api/types";
import { isTerminal } from "../../live/job";
import { Confirm, type Question } from "../../ui/confirm";
import { Icon } from "../../ui/icon";
import { plural } from "../../words/number";
import { MOST_JOBS } from "../compare/limit";

interface Props {
  jobs: readonly JobView[];
  /** Ids of the chosen jobs. */
  chosen: ReadonlySet<string>;
  onChange: (chosen: ReadonlySet<string>) => void;
}

export function Selection({ jobs, chosen, onChange }: Props) {
  const [question, ask] = useState<Question | null>(null);
  const shown = jobs.filter(({ id }) => chosen.has(id));
  const open = shown.filter(({ phase }) => !isTerminal(phase));
  if (shown.length === 0) return null;
  const clear = () => onChange(new Set());
  const cancel = () =>
    ask({
      title: `Cancel ${plural(open.length, "job")}?`,
      text: `${open.map(({ name }) => name).join(", ")}. Their tasks stop after a checkpoint; they cannot be resumed.`,
      verb: "Cancel them",
      danger: true,
      act: async () => {
        // One refusal, such as that of a job that has ended meanwhile, must not spare the others.
        const done = await Promise.allSettled(open.map(({ id }) => act(id, "cancel")));
        onChange(new Set(open.filter((_, place) => done[place]?.status === "rejected").map(({ id }) => id)));
        const refused = done.find(({ status }) => status === "rejected");
        if (refused?.status === "rejected") throw refused.reason;
      },
    });
  const search = new URLSearchParams(shown.map(({ id }) => ["job", id])).toString();
  const isComparable = shown.length >= 2 && shown.length <= MOST_JOBS;
  return (
    <div className="selection" role="region" aria-label="Chosen jobs">
      <span>{plural(shown.length, "job")} chosen</span>
      {isComparable ? (
        <Link className="button button-primary" to={{ pathname: "/compare", search }}>
          Compare
        </Link>
      ) : (
        <span className="muted">
          {shown.length < 2 ? "choose another to compare" : `at most ${MOST_JOBS} can be compared`}
        </span>
      )}
      {open.length > 0 ? (
        <button type="button" className="button" onClick={cancel}>
          <Icon name="cancel" /> Cancel {open.length === shown.length ? "" : plural(open.length, "open job")}
        </button>
      ) : null}
      <button type="button" className="button" onClick={clear}>
        Clear
      </button>
      {question === null ? null : <Confirm question={question} onClose={() => ask(null)} />}
    </div>
  );
}
