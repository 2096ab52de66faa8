// Forecasts as text: durations from now, first the median, then the 80 % interval.
import type { Accuracy, Interval, Unforeseen } from "../api/types";
import { percent } from "./number";
import { duration, instant } from "./time";

/** Returns `12m (9m to 20m)`, or a text for an unsure interval. */
export function expected(interval: Interval, now: number): string {
  if (interval.unsure === true) return `not known well enough yet: about ${fromNow(interval.p50, now)}`;
  return `${fromNow(interval.p50, now)} (${fromNow(interval.p10, now)} to ${fromNow(interval.p90, now)})`;
}

/** Returns `in 12m (9m to 20m)`, or a text for an unsure interval. */
export function expectedIn(interval: Interval, now: number): string {
  return interval.unsure === true ? expected(interval, now) : `in ${expected(interval, now)}`;
}

/** Returns the text of a table cell: `9m–20m`, or `12m?` for an unsure interval. */
export function range(interval: Interval, now: number): string {
  if (interval.unsure === true) return `${fromNow(interval.p50, now)}?`;
  const [least, most] = [fromNow(interval.p10, now), fromNow(interval.p90, now)];
  return least === most ? least : `${least}–${most}`;
}

/** Returns the interval as dates, for titles. */
export function dates(interval: Interval): string {
  if (interval.unsure === true) return `Not known well enough yet: about ${instant(interval.p50)}`;
  return `80 % between ${instant(interval.p10)} and ${instant(interval.p90)}`;
}

/** Returns an amount of GPU-hours. Jobs without GPUs need none. */
export function gpuHours(hours: number): string {
  return hours > 0 ? `${hours.toPrecision(2)} GPU-hours` : "no GPU-hours";
}

/** Returns why the end of a job is unknown; `null` if it is known. */
export function unforeseenSentence(why: Unforeseen | null | undefined): string | null {
  switch (why) {
    case null:
    case undefined:
      return null;
    case "no_length":
      return "nothing says how long it is, and no job like it has succeeded yet";
    case "outlived":
      return "it has run longer than jobs like it did";
    case "behind_others":
      return "it depends on jobs of which nothing says how long they are";
    case "other":
      return "this page does not know why";
  }
}

/** Returns the accuracy of such intervals; `null` while it is unknown. */
export function heldSentence(accuracy: Accuracy | null): string | null {
  const rate = accuracy?.finish;
  if (rate === undefined || rate.share === null) return null;
  return `Such intervals held ${percent(rate.share, 0)} of the time (${rate.forecasts} forecasts of ${rate.jobs ?? 0} jobs).`;
}

function fromNow(at: string, now: number): string {
  return duration(Math.max(0, (Date.parse(at) - now) / 1000));
}
