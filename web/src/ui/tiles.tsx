// Overview of the cluster above the lists: GPUs, jobs, nodes. Updated by the same events as the
// lists.
import { useState } from "react";
import { jobs, nodes } from "../api/calls";
import { useResource } from "../api/resource";
import { changesNodes, foldNodes, foldPhases, phaseCount, slotName, usage, type Phases } from "../live/cluster";
import { useLive } from "../live/feed";
import { NONE, count } from "../words/number";

/** Maximum number of counted unfinished jobs; a higher number is shown as a lower bound. */
const COUNTED = 500;

interface Counted {
  phases: Phases;
  more: boolean;
}

async function countJobs(signal: AbortSignal): Promise<Counted> {
  const phase = ["queued", "starting", "running", "suspended", "stopping", "paused"] as const;
  const page = await jobs({ phase, label: "", name: "", limit: COUNTED, continue: null }, signal);
  return { phases: new Map(page.items.map((job) => [job.id, job.phase])), more: page.continue !== null };
}

export function Tiles() {
  const [key] = useState("tiles");
  const cluster = useResource(key, nodes);
  const active = useResource(key, countJobs);
  useLive(
    (message) => {
      if (message.kind !== "event") return;
      cluster.update((known) => [...foldNodes(known, message.event)]);
      active.update((known) => ({ ...known, phases: foldPhases(known.phases, message.event) }));
      if (changesNodes(message.event.event)) cluster.reload();
    },
    () => {
      cluster.reload();
      active.reload();
    },
  );
  const used = cluster.data === null ? null : usage(cluster.data);
  const slots = slotName((cluster.data ?? []).flatMap((node) => node.gpus));
  const tally = (...wanted: Parameters<typeof phaseCount>[1][]) =>
    active.data === null ? NONE : `${count(phaseCount(active.data.phases, ...wanted))}${active.data.more ? "+" : ""}`;
  return (
    <dl className="tiles" aria-label="Cluster">
      <div className="tile tile-wide">
        <dt>{slots}s in use</dt>
        <dd>
          <span className="tile-number">{used === null ? NONE : count(used.gpusUsed)}</span>
          <span className="tile-of">{used === null ? "" : `of ${count(used.gpusTotal)}`}</span>
        </dd>
        <dd className="tile-meter" aria-hidden="true">
          <span
            style={{ width: `${used === null || used.gpusTotal === 0 ? 0 : (used.gpusUsed / used.gpusTotal) * 100}%` }}
          />
        </dd>
      </div>
      <Tile label="Running" value={tally("running", "starting", "stopping")} of={running(active.data)} />
      <Tile label="Waiting" value={tally("queued")} of="" />
      <Tile label="Paused" value={tally("paused")} of="" />
      <Tile
        label="Nodes up"
        value={used === null ? NONE : count(used.nodesUp)}
        of={used === null ? "" : `of ${count(used.nodesTotal)}`}
      />
    </dl>
  );
}

function Tile({ label, value, of }: { label: string; value: string; of: string }) {
  return (
    <div className="tile">
      <dt>{label}</dt>
      <dd>
        <span className="tile-number">{value}</span>
        <span className="tile-of">{of}</span>
      </dd>
    </div>
  );
}

/** Returns how many of the jobs with GPUs are starting or stopping. */
function running(counted: Counted | null): string {
  if (counted === null) return "";
  const moving = phaseCount(counted.phases, "starting", "stopping");
  return moving === 0 ? "" : `${count(moving)} changing`;
}
