// Forecasts as people read them: spans from now, the middle first, then between what four cases of five lie.
import type { Accuracy, Interval } from "../api/types";
import { percent } from "./number";
import { duration, instant } from "./time";

/** `in 12m (9m to 20m)`. */
export function expected(interval: Interval, now: number): string {
  return `${fromNow(interval.p50, now)} (${fromNow(interval.p10, now)} to ${fromNow(interval.p90, now)})`;
}

/** For columns: `9m–20m`. */
export function range(interval: Interval, now: number): string {
  const [least, most] = [fromNow(interval.p10, now), fromNow(interval.p90, now)];
  return least === most ? least : `${least}–${most}`;
}

/** The same as dates, for titles. */
export function dates(interval: Interval): string {
  return `80 % between ${instant(interval.p10)} and ${instant(interval.p90)}`;
}

/** How often such intervals held; `null` while nothing is known. */
export function heldSentence(accuracy: Accuracy | null): string | null {
  const rate = accuracy?.finish;
  if (rate === undefined || rate.share === null) return null;
  return `Such intervals held ${percent(rate.share, 0)} of the time (${rate.held} of ${rate.forecasts}).`;
}

function fromNow(at: string, now: number): string {
  return duration(Math.max(0, (Date.parse(at) - now) / 1000));
}
