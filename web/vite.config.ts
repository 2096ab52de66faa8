import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The API server serves the page with a content security policy without inline scripts, so
// index.html must contain no inlined code: no module preload polyfill, no data: assets. In
// development the API listens on its own port.
const api = process.env.MUSTER_API_URL ?? "http://127.0.0.1:7070";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  // The templates of the submit page are the examples of the repository.
  server: { proxy: { "/api": api, "/openapi.json": api }, fs: { allow: [".", "../examples"] } },
  test: {
    environment: "jsdom",
    setupFiles: ["src/test-setup.ts"],
    include: ["src/**/*.test.{ts,tsx}"],
    restoreMocks: true,
    testTimeout: 20_000,
  },
});
