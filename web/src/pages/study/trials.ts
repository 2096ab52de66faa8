// All trials of a study, shown while they are still coming: of a large one the pages take their time.
import { useRef, useState } from "react";
import { useResource, type Resource } from "../../api/resource";
import { trials } from "../../api/studies";
import type { TrialView } from "../../api/types";

/** All trials with their curves are asked for at most this share of the time, however long that takes. */
const ASKING_SHARE = 0.1;
/** Charts are drawn anew when there are so many times the trials of before: each time over, drawing stays a share of the loading. */
const GROWTH = 1.5;

export interface Trials extends Resource<TrialView[]> {
  /** What has come of the first answer, and grows until that is complete. */
  part: readonly TrialView[];
  /** How many have come of it, those that are not shown yet among them. */
  loaded: number;
  /** As `reload`, unless it would be asked for too often. */
  reloadInTurn: () => void;
}

/** Of no study while `id` is null. */
export function useTrials(id: string | null): Trials {
  const notBefore = useRef(0);
  const [part, setPart] = useState<{ trials: readonly TrialView[]; loaded: number }>({ trials: [], loaded: 0 });
  const complete = useRef(false);
  const all = useResource(id, async (signal) => {
    const begun = performance.now();
    notBefore.current = Infinity;
    const onPage = (soFar: readonly TrialView[]) => {
      if (complete.current || signal.aborted) return;
      setPart((before) => ({
        trials: soFar.length >= before.trials.length * GROWTH ? [...soFar] : before.trials,
        loaded: soFar.length,
      }));
    };
    try {
      const found = await trials(id ?? "", signal, onPage);
      complete.current = true;
      return found;
    } finally {
      const ended = performance.now();
      notBefore.current = ended + (ended - begun) * (1 / ASKING_SHARE - 1);
    }
  });
  const { reload } = all;
  const reloadInTurn = () => {
    if (performance.now() >= notBefore.current) reload();
  };
  return { ...all, part: part.trials, loaded: part.loaded, reloadInTurn };
}
