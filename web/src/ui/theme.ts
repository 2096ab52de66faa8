// Light, dark, or the system's theme; the choice is stored. public/theme.js applies it before the
// first paint.
import { useSyncExternalStore } from "react";

export type Theme = "system" | "light" | "dark";

const KEY = "muster.theme";
const listeners = new Set<() => void>();
const dark = window.matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", () => notify());

export function useTheme(): Theme {
  return useSyncExternalStore(subscribe, chosen);
}

/** Returns the colours that are shown, for drawings on a canvas. */
export function useShownTheme(): "light" | "dark" {
  return useSyncExternalStore(subscribe, shown);
}

export function setTheme(theme: Theme): void {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  try {
    if (theme === "system") localStorage.removeItem(KEY);
    else localStorage.setItem(KEY, theme);
  } catch {
    // Storage is not available: the choice lasts until the page is closed.
  }
  notify();
}

function chosen(): Theme {
  const theme = document.documentElement.dataset.theme;
  return theme === "light" || theme === "dark" ? theme : "system";
}

function shown(): "light" | "dark" {
  const theme = chosen();
  return theme === "system" ? (dark.matches ? "dark" : "light") : theme;
}

function notify(): void {
  document.documentElement.dataset.shown = shown();
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
  };
}
