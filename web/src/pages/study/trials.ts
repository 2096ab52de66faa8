// All trials of a study, shown while they are loaded: the pages of a large study take time.
import { useRef, useState } from "react";
import { useResource, type Resource } from "../../api/resource";
import { trials } from "../../api/studies";
import type { TrialView } from "../../api/types";

/** Maximum share of the time in which all trials with curves are requested. */
const ASKING_SHARE = 0.1;
/**
 * Growth factor after which charts are drawn again. All drawings together then cost twice the last
 * one.
 */
const GROWTH = 2;
/** Interval between updates of the count, in ms. */
const COUNT_EVERY_MS = 400;

export interface Trials extends Resource<TrialView[]> {
  /** Received trials of the first answer, until it is complete. */
  part: readonly TrialView[];
  /** Number of received trials, including those not shown yet. */
  loaded: number;
  /** Does the same as `reload`, unless the last request was too recent. */
  reloadInTurn: () => void;
}

/** Loads no study while `id` is null. */
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
      // An aborted request may have received more trials than this one so far.
      setPart((before) => ({
        trials: grown && soFar.length >= before.trials.length ? [...soFar] : before.trials,
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
