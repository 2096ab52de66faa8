// All trials of a study, shown while they are still coming: of a large one the pages take their time.
import { useRef, useState } from "react";
import { useResource, type Resource } from "../../api/resource";
import { trials } from "../../api/studies";
import type { TrialView } from "../../api/types";

/** All trials with their curves are asked for at most this share of the time, however long that takes. */
const ASKING_SHARE = 0.1;
/** Charts are drawn anew when there are so many times the trials of before: all drawings together then cost twice the last one. */
const GROWTH = 2;
/** How often the count is brought forward in between. */
const COUNT_EVERY_MS = 400;

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
    let drawn = 0;
    let counted = -Infinity;
    const onPage = (soFar: readonly TrialView[]) => {
      const grown = soFar.length >= drawn * GROWTH;
      if (complete.current || signal.aborted || (!grown && performance.now() < counted + COUNT_EVERY_MS)) return;
      counted = performance.now();
      if (grown) drawn = soFar.length;
      // One that was broken off may have come further than this one has yet.
      setPart((before) => ({ trials: grown && soFar.length >= before.trials.length ? [...soFar] : before.trials, loaded: soFar.length }));
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
