// What the study page shows, asked again while the study goes on: no event of the stream tells of a study.
import { useEffect, useRef } from "react";
import { useResource, type Resource } from "../../api/resource";
import { bestTrials, study, trials } from "../../api/studies";
import type { BestTrial, StudyView, TrialView } from "../../api/types";
import { useLive } from "../../live/feed";
import { usePoll } from "../../ui/poll";
import { isOver } from "../../words/study";

const POLL_MS = 3000;
/** All trials with their curves are asked for at most this share of the time, however long that takes. */
const ASKING_SHARE = 0.1;

export interface StudyData {
  study: Resource<StudyView>;
  trials: Resource<TrialView[]>;
  best: Resource<BestTrial[]>;
  reload: () => void;
}

export function useStudyData(id: string): StudyData {
  const notBefore = useRef(0);
  const one = useResource(id, (signal) => study(id, signal));
  const all = useResource(id, async (signal) => {
    const begun = performance.now();
    notBefore.current = Infinity;
    try {
      return await trials(id, signal);
    } finally {
      const ended = performance.now();
      notBefore.current = ended + (ended - begun) * (1 / ASKING_SHARE - 1);
    }
  });
  const best = useResource(id, (signal) => bestTrials(id, signal));
  const reload = () => {
    one.reload();
    all.reload();
    best.reload();
  };
  const phase = one.data?.phase;
  const over = phase !== undefined && isOver(phase);
  // A study that is over may be extended elsewhere.
  usePoll(over ? 10 * POLL_MS : POLL_MS, () => {
    one.reload();
    if (performance.now() < notBefore.current) return;
    all.reload();
    best.reload();
  });
  useLive(() => undefined, reload);
  // The last results come with the last phase, when it is asked less often.
  const { reload: reloadTrials } = all;
  const { reload: reloadBest } = best;
  useEffect(() => {
    if (!over) return;
    reloadTrials();
    reloadBest();
  }, [over, reloadTrials, reloadBest]);
  return { study: one, trials: all, best, reload };
}
