// Live curves of a job, over steps or over time.
import { useMemo, useState } from "react";
import { CurveChart, NoiseChart, PhaseChart, SizeChart } from "../../charts/job-charts";
import type { XKind } from "../../charts/curves";
import type { JobView } from "../../api/types";
import { revisionMarks, sizeHistory } from "../../live/history";
import { isTerminal } from "../../live/job";
import { useNow } from "../../ui/now";
import { Panel } from "../../ui/panel";
import { Empty, Failure, Loading } from "../../ui/states";
import type { JobData } from "./load";

export function Curves({ job, data }: { job: JobView; data: JobData }) {
  const [x, setX] = useState<XKind>("step");
  const now = useNow(5000);
  const { progress, events } = data;
  const marks = useMemo(
    () => revisionMarks(events.data ?? [], progress.data?.samples ?? []),
    [events.data, progress.data],
  );
  const end = isTerminal(job.phase) && job.finished_at !== null ? Date.parse(job.finished_at) : now;
  const history = useMemo(() => sizeHistory(events.data ?? [], end), [events.data, end]);
  const switcher = (
    <div className="segments segments-small" role="group" aria-label="Curves over">
      {(["step", "time"] as const).map((kind) => (
        <button key={kind} type="button" className="segment" aria-pressed={x === kind} onClick={() => setX(kind)}>
          {kind}
        </button>
      ))}
    </div>
  );
  return (
    <Panel title="Training" aside={switcher} className="curves">
      {progress.error !== null ? <Failure error={progress.error} retry={progress.reload} /> : null}
      {progress.loading ? <Loading label="Loading the curves" rows={6} /> : null}
      {progress.data === null ? null : progress.data.samples.length + progress.data.evaluations.length === 0 ? (
        <Empty title="No training step yet">
          <p>
            {job.spec.command == null
              ? "The curves begin with the first sample of the chief worker."
              : "The curves begin with the first loss or accuracy that the program logs."}
          </p>
        </Empty>
      ) : (
        <div className="charts">
          <CurveChart
            metric="loss"
            samples={progress.data.samples}
            evaluations={progress.data.evaluations}
            marks={marks}
            x={x}
            group={job.id}
          />
          <CurveChart
            metric="accuracy"
            samples={progress.data.samples}
            evaluations={progress.data.evaluations}
            marks={marks}
            x={x}
            group={job.id}
          />
          {history.length > 1 ? <SizeChart points={history} /> : null}
          <PhaseChart samples={progress.data.samples} marks={marks} x={x} group={job.id} />
          <NoiseChart samples={progress.data.samples} marks={marks} x={x} group={job.id} />
        </div>
      )}
    </Panel>
  );
}
