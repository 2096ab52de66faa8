// One node: state, capacity, and a square for each GPU.
import { useState } from "react";
import { Link } from "react-router";
import type { GpuView, NodeView, Occupant } from "../../api/types";
import { isClosedByPeople, slotName } from "../../live/cluster";
import { useNow } from "../../ui/now";
import { bytes, count, plural } from "../../words/number";
import { duration, instant } from "../../words/time";

/** Represents jobs of other tenants, which have no id here. */
export const OTHERS = "";

interface Props {
  node: NodeView;
  colours: ReadonlyMap<string, number>;
  /** `null` without the right to drain. */
  onDrain: (() => void) | null;
}

export function NodeCard({ node, colours, onDrain }: Props) {
  const [shown, setShown] = useState<number | null>(null);
  const used = node.gpus.filter((gpu) => gpu.job !== null).length;
  const isClosed = isClosedByPeople(node);
  const status = statusOf(node);
  const said = node.notice !== null && node.notice.closed !== "open" ? node.notice.why : undefined;
  const taken = node.notice?.taken ?? 0;
  const suspend = suspendOf(node);
  const isolation = isolationOf(node);
  const images = imagesOf(node);
  const detail = node.gpus.find((gpu) => gpu.index === shown);
  return (
    <section className="node" data-status={status} aria-label={`Node ${node.name}`}>
      <header className="node-head">
        <h2>{node.name}</h2>
        <span className="node-status" data-status={status}>
          {node.state === "lost" && node.drained ? "lost, drained" : status}
        </span>
        {onDrain === null ? null : (
          <button
            type="button"
            className="button button-small"
            onClick={onDrain}
            aria-label={`${isClosed ? "Uncordon" : "Drain"} ${node.name}`}
          >
            {isClosed ? "Uncordon" : "Drain"}
          </button>
        )}
      </header>
      <ul
        className="slots"
        onMouseLeave={() => setShown(null)}
        aria-label={`${used} of ${plural(node.gpus.length, slotName(node.gpus))} in use`}
      >
        {node.gpus.map((gpu) => (
          <li key={gpu.index}>
            <Slot
              gpu={gpu}
              colour={gpu.job === null ? undefined : colours.get(gpu.job.id ?? OTHERS)}
              onShow={() => setShown(gpu.index)}
            />
          </li>
        ))}
      </ul>
      {node.excluded === null ? null : <p className="node-detail">Takes no new work: {node.excluded.why}</p>}
      {said === undefined ? null : <p className="node-detail">Closed by its cluster: {said}</p>}
      {taken === 0 ? null : (
        <p className="node-detail">{`${taken} of ${plural(node.gpus.length, slotName(node.gpus))} not Muster's${said === undefined ? `: ${node.notice?.why}` : ""}`}</p>
      )}
      {node.speed == null ? null : (
        <p className="node-detail" title={`Compared with other nodes by ${plural(node.speed.jobs, "job")}`}>
          Speed {node.speed.percent} % of its kind
        </p>
      )}
      {isolation === undefined ? null : <p className="node-detail">{isolation}</p>}
      {images === undefined ? null : <p className="node-detail">{images}</p>}
      {suspend === undefined ? null : <p className="node-detail">{suspend}</p>}
      <p className="node-detail" aria-live="polite">
        {detail === undefined ? <Facts node={node} used={used} /> : describe(detail)}
      </p>
    </section>
  );
}

/** Returns whether suspended programs move their memory off the GPUs, if the node has any. */
function suspendOf({ capacity }: NodeView): string | undefined {
  const able = capacity.driver_suspend;
  if (able === undefined || able === null) return undefined;
  return able.kind === "able"
    ? "Suspended programs leave the GPUs"
    : `Suspended programs keep their memory on the GPUs: ${able.why}`;
}

/** Returns what separates process tasks of different tenants, if the node reports it. */
function isolationOf({ capacity }: NodeView): string | undefined {
  const { isolation } = capacity;
  if (isolation === undefined || isolation === null) return undefined;
  switch (isolation.kind) {
    case "tenant_users":
      return isolation.shared_view == null
        ? "Each tenant has a Unix user"
        : `Each tenant has a Unix user; /tmp is shared: ${isolation.shared_view}`;
    case "shared_user":
      return "Tenants share a Unix user";
    case "executor_user":
      return "Tasks run as the executor's user";
  }
}

/** Returns whether process tasks can run in images, if the node reports it. */
function imagesOf({ capacity }: NodeView): string | undefined {
  const { images } = capacity;
  if (images === undefined || images === null) return undefined;
  return images.kind === "able" ? "Tasks can run in images" : `Tasks cannot run in images: ${images.why}`;
}

function statusOf({ state, drained, excluded, notice }: NodeView): "lost" | "drained" | "excluded" | "cordoned" | "up" {
  if (state === "lost") return "lost";
  if (drained || notice?.closed === "to_all") return "drained";
  if (excluded !== null) return "excluded";
  return notice?.closed === "to_new" ? "cordoned" : "up";
}

function Slot({ gpu, colour, onShow }: { gpu: GpuView; colour: number | undefined; onShow: () => void }) {
  const text = describe(gpu);
  const props = {
    className: "slot",
    title: text,
    "aria-label": text,
    onMouseEnter: onShow,
    onFocus: onShow,
    "data-job": colour,
  };
  if (gpu.job !== null && gpu.job.id !== null) {
    return (
      <Link {...props} to={`/jobs/${gpu.job.id}`}>
        <span aria-hidden="true">{gpu.index}</span>
      </Link>
    );
  }
  return (
    <button type="button" {...props} data-held={gpu.job !== null}>
      <span aria-hidden="true">{gpu.index}</span>
    </button>
  );
}

function describe(gpu: GpuView): string {
  const capability = gpu.compute_capability == null ? "" : `, compute capability ${gpu.compute_capability}`;
  const what =
    gpu.kind === "cuda"
      ? `GPU ${gpu.index}, ${gpu.model}, ${bytes(gpu.memory_bytes)}${capability}`
      : `CPU slot ${gpu.index}`;
  if (gpu.job === null) return `${what}: free`;
  const guest = gpu.guest === undefined || gpu.guest === null ? "" : `, and beside it ${named(gpu.guest)}`;
  return `${what}: ${named(gpu.job)}${guest}`;
}

function named(job: Occupant): string {
  return `${job.name ?? "another tenant's job"}${job.tenant === null ? "" : ` (${job.tenant})`}`;
}

function Facts({ node, used }: { node: NodeView; used: number }) {
  const now = useNow(5000);
  const { cpu_milli: cpu, memory_bytes: memory } = node.capacity;
  return (
    <>
      <span className="num">
        {used}/{node.gpus.length} {slotName(node.gpus)}s
      </span>
      {" · "}
      <span className="num">{count(cpu / 1000)} cores</span>
      {" · "}
      <span className="num">{bytes(memory)}</span>
      {node.state === "lost" ? (
        <span title={instant(node.last_seen_at)}>
          {" "}
          · last seen {duration((now - Date.parse(node.last_seen_at)) / 1000)} ago
        </span>
      ) : null}
    </>
  );
}
