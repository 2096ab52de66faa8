// The edited document of a page, kept until it is sent or the tab is closed.

function key(noun: string): string {
  return `muster.draft.${noun.toLowerCase()}`;
}

export function readDraft(noun: string): string | null {
  try {
    return sessionStorage.getItem(key(noun));
  } catch {
    // Storage may be forbidden; the page works without drafts.
    return null;
  }
}

/** Keeps a draft; `null` removes it. */
export function keepDraft(noun: string, text: string | null): void {
  try {
    if (text === null) sessionStorage.removeItem(key(noun));
    else sessionStorage.setItem(key(noun), text);
  } catch {
    // The storage is full or forbidden.
  }
}
