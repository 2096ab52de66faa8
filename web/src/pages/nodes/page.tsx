// The cluster's nodes, one square per GPU, coloured by the job that holds it.
import { useState } from "react";
import { Link } from "react-router";
import { nodes, setDrained } from "../../api/calls";
import { useResource } from "../../api/resource";
import type { NodeView } from "../../api/types";
import { assignColours, changesNodes, foldNodes, isClosedByPeople, slotName } from "../../live/cluster";
import { useLive } from "../../live/feed";
import { Confirm, type Question } from "../../ui/confirm";
import { useMe } from "../../ui/me";
import { Empty, Failure, Loading } from "../../ui/states";
import { Tiles } from "../../ui/tiles";
import { useTitle } from "../../ui/title";
import { plural } from "../../words/number";
import { NodeCard, OTHERS } from "./card";

export function NodesPage() {
  useTitle("Nodes");
  const me = useMe();
  const list = useResource("nodes", nodes);
  const [question, setQuestion] = useState<Question | null>(null);
  const [colours, setColours] = useState<ReadonlyMap<string, number>>(new Map());
  useLive(
    (message) => {
      if (message.kind !== "event") return;
      list.update((known) => [...foldNodes(known, message.event)]);
      if (changesNodes(message.event.event)) list.reload();
    },
    () => list.reload(),
  );
  const held = jobsOf(list.data ?? []);
  // Jobs keep their colours while others come and go. Colours are computed only when the set of
  // jobs has changed.
  if (held.some((job) => !colours.has(job.id)) || colours.size !== held.length) {
    setColours(
      assignColours(
        colours,
        held.map((job) => job.id),
      ),
    );
  }
  const drain = (node: NodeView) => {
    const isClosed = isClosedByPeople(node);
    setQuestion({
      title: isClosed ? `Let ${node.name} take work again?` : `Drain ${node.name}?`,
      text: isClosed
        ? "The scheduler may place tasks on it from its next round on."
        : "It takes no new tasks, and the jobs on it move away: each writes a checkpoint and continues elsewhere, or waits.",
      verb: isClosed ? "Uncordon" : "Drain",
      danger: !isClosed,
      act: async () => {
        await setDrained(node.name, !isClosed);
        const excluded = isClosed && node.excluded?.by_itself !== true ? null : node.excluded;
        list.update((known) =>
          known.map((other) => (other.id === node.id ? { ...other, drained: !isClosed, excluded } : other)),
        );
        setQuestion(null);
      },
    });
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Nodes</h1>
      </div>
      <Tiles />
      {list.error !== null && list.data === null ? <Failure error={list.error} retry={list.reload} /> : null}
      {list.loading ? <Loading label="Loading nodes" rows={6} /> : null}
      {list.data?.length === 0 ? (
        <Empty title="No node has joined">
          <p>
            Start <code>muster-executor</code> on a machine, with the scheduler's address and its join token.
          </p>
        </Empty>
      ) : null}
      {held.length > 0 ? (
        <Legend jobs={held} colours={colours} slot={slotName((list.data ?? []).flatMap((node) => node.gpus))} />
      ) : null}
      <div className="nodes">
        {list.data?.map((node) => (
          <NodeCard
            key={node.id}
            node={node}
            colours={colours}
            onDrain={me.access === "admin" ? () => drain(node) : null}
          />
        ))}
      </div>
      {question === null ? null : <Confirm question={question} onClose={() => setQuestion(null)} />}
    </div>
  );
}

interface Held {
  id: string;
  name: string | null;
  tenant: string | null;
  gpus: number;
}

/**
 * Returns the jobs that hold GPUs, by first appearance. Those of other tenants have no id and are
 * one entry.
 */
function jobsOf(all: readonly NodeView[]): Held[] {
  const held = new Map<string, Held>();
  for (const gpu of all.flatMap((node) => node.gpus)) {
    if (gpu.job === null) continue;
    const id = gpu.job.id ?? OTHERS;
    const known = held.get(id);
    if (known === undefined) held.set(id, { ...gpu.job, id, gpus: 1 });
    else known.gpus += 1;
  }
  return [...held.values()];
}

function Legend({
  jobs,
  colours,
  slot,
}: {
  jobs: readonly Held[];
  colours: ReadonlyMap<string, number>;
  slot: string;
}) {
  return (
    <ul className="legend" aria-label="Jobs on these nodes">
      {jobs.map((job) => (
        <li key={job.id}>
          <span className="swatch" data-job={colours.get(job.id)} aria-hidden="true" />
          {job.name === null ? (
            <span className="muted">other tenants' jobs</span>
          ) : (
            <Link to={`/jobs/${job.id}`}>{job.name}</Link>
          )}
          <span className="muted num">{plural(job.gpus, slot)}</span>
        </li>
      ))}
      <li>
        <span className="swatch" aria-hidden="true" />
        <span className="muted">free</span>
      </li>
    </ul>
  );
}
