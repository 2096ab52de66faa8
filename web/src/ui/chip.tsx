// A state with its colour and, on hovering, its meaning; for studies and trials, whose names differ
// from those of jobs.

export function Chip({ word, like, meaning }: { word: string; like: string; meaning: string }) {
  return (
    <span className="phase" data-phase={like} title={meaning}>
      <span className="phase-dot" aria-hidden="true" />
      {word}
    </span>
  );
}
