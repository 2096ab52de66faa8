import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

// The api serves the page under a content security policy without inline scripts, so nothing may be inlined into
// index.html: no module preload polyfill, no data: assets. In development the api answers from its own port.
const api = process.env.MUSTER_API_URL ?? "http://127.0.0.1:7070";

export default defineConfig({
  plugins: [react()],
  build: {
    target: "es2022",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": api, "/openapi.json": api } },
  test: { environment: "jsdom", setupFiles: ["src/test-setup.ts"], include: ["src/**/*.test.{ts,tsx}"], restoreMocks: true, testTimeout: 20_000 },
});
