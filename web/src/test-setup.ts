// Adds functions that jsdom lacks and the pages use.
import { configure } from "@testing-library/react";

// A long limit, because the duration depends only on the load of the machine. Tests for missing
// elements still fail.
configure({ asyncUtilTimeout: 4000 });
window.matchMedia = (query: string): MediaQueryList =>
  ({
    matches: false,
    media: query,
    addEventListener: () => undefined,
    removeEventListener: () => undefined,
  }) as unknown as MediaQueryList;
// Charts draw nothing in jsdom; their content is tested without a canvas.
HTMLCanvasElement.prototype.getContext = () => null;
globalThis.ResizeObserver = class {
  observe = () => undefined;
  unobserve = () => undefined;
  disconnect = () => undefined;
};
HTMLDialogElement.prototype.showModal = function showModal() {
  this.open = true;
};
