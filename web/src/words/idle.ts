// Idleness of a program, in words.
import type { IdleView } from "../api/types";
import { instant } from "./time";

/** Returns the evidence, and when an interactive job ends. */
export function idleText({ evidence, ends_at: endsAt }: IdleView): string {
  const ends = typeof endsAt === "string" ? `; it ends at ${instant(endsAt)} without use` : "";
  return `Idle: ${evidence}${ends}`;
}
