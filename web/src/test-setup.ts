// What jsdom lacks and the pages use.
window.matchMedia = (query: string): MediaQueryList =>
  ({ matches: false, media: query, addEventListener: () => undefined, removeEventListener: () => undefined }) as unknown as MediaQueryList;
