// Reasons why a checkpoint is retained, in words.
import type { CheckpointView } from "../../api/types";

export const reasons: Record<CheckpointView["kept"][number], string> = {
  newest: "newest",
  best: "best",
  milestone: "milestone",
  origin: "another job's origin",
};
