// Asks again and again where no event tells of a change, as with studies: only while the page is seen.
import { useEffect, useRef } from "react";

export function usePoll(everyMs: number, again: () => void): void {
  const latest = useRef(again);
  useEffect(() => {
    latest.current = again;
  });
  useEffect(() => {
    if (everyMs === 0) return undefined;
    const timer = setInterval(() => {
      if (!document.hidden) latest.current();
    }, everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
}
