// What jsdom lacks and the pages use.
import { configure } from "@testing-library/react";

// How long a page may take to show something says how busy the machine is, and nothing else: what never comes fails all the same.
configure({ asyncUtilTimeout: 4000 });
window.matchMedia = (query: string): MediaQueryList =>
  ({ matches: false, media: query, addEventListener: () => undefined, removeEventListener: () => undefined }) as unknown as MediaQueryList;
// Charts draw nothing there; what they show is tested without a canvas.
HTMLCanvasElement.prototype.getContext = () => null;
globalThis.ResizeObserver = class {
  observe = () => undefined;
  unobserve = () => undefined;
  disconnect = () => undefined;
};
HTMLDialogElement.prototype.showModal = function showModal() {
  this.open = true;
};
