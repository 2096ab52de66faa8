// Data of the study page. It is polled while the study runs, because the stream has no events of
// studies.
import { useEffect, useRef } from "react";
import { isGone } from "../../api/problem";
import { useResource, type Resource } from "../../api/resource";
import { bestTrial, study } from "../../api/studies";
import type { BestTrial, StudyView } from "../../api/types";
import { useLive } from "../../live/feed";
import { usePoll } from "../../ui/poll";
import { isOver } from "../../words/study";
import { useTrials, type Trials } from "./trials";

const POLL_MS = 3000;

export interface StudyData {
  study: Resource<StudyView>;
  trials: Trials;
  best: Resource<BestTrial | null>;
  /** The study does not exist any more: polling stops. */
  gone: boolean;
  reload: () => void;
}

export function useStudyData(id: string): StudyData {
  const one = useResource(id, (signal) => study(id, signal));
  const gone = isGone(one.error);
  // Trials are requested again after the end is known, because an earlier answer may lack the end.
  const known = one.data === null ? null : id;
  const all = useTrials(known);
  const best = useResource(known, (signal) => bestTrial(id, signal));
  const reload = () => {
    if (gone) return;
    one.reload();
    all.reload();
    best.reload();
  };
  const over = one.data !== null && isOver(one.data.phase);
  // A finished study may be extended by another user.
  usePoll(gone ? 0 : over ? 10 * POLL_MS : POLL_MS, () => {
    one.reload();
    if (over) return;
    all.reloadInTurn();
    best.reload();
  });
  useLive(
    () => undefined,
    () => {
      if (gone) return;
      one.reload();
      all.reloadInTurn();
      best.reload();
    },
  );
  // The last results come with the last phase. Afterwards only changes of the study itself matter.
  const stamp =
    one.data === null ? null : over ? `${one.data.phase} ${one.data.events} ${one.data.trials.created}` : "going on";
  const seen = useRef(stamp);
  const { reload: reloadTrials } = all;
  const { reload: reloadBest } = best;
  useEffect(() => {
    const before = seen.current;
    seen.current = stamp;
    if (!over || before === null || before === stamp) return;
    reloadTrials();
    reloadBest();
  }, [over, stamp, reloadTrials, reloadBest]);
  return { study: one, trials: all, best, gone, reload };
}
