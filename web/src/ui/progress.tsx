// A bar of completed steps. Without a known end it shows only their number.
import type { JobPhase, ProgressView } from "../api/types";
import { NONE, count, percent } from "../words/number";

export function ProgressBar({ progress, phase }: { progress: ProgressView | null; phase: JobPhase }) {
  if (progress === null) return <span className="muted">{NONE}</span>;
  const { step, total_steps: total } = progress;
  if (total === null) return <span className="num">{count(step)} steps</span>;
  // A target or convergence may end the training before the last step; it is then complete.
  const share = total === 0 || phase === "succeeded" ? 1 : Math.min(1, step / total);
  return (
    <div className="progress" data-phase={phase}>
      <div
        className="progress-track"
        role="progressbar"
        aria-valuemin={0}
        aria-valuemax={total}
        aria-valuenow={step}
        aria-label="Steps done"
        aria-valuetext={`${percent(share, 0)}, step ${count(step)} of ${count(total)}`}
      >
        <div className="progress-fill" style={{ width: `${share * 100}%` }} />
      </div>
      <span className="progress-text num">
        {count(step)}
        <span className="muted"> / {count(total)}</span>
      </span>
    </div>
  );
}
