// Entry point of the page.
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { BrowserRouter } from "react-router";
import { adoptFragment } from "./api/session";
import { App } from "./app";
import "uplot/dist/uPlot.min.css";
import "./styles/index.css";

adoptFragment(window.location, window.history);
window.addEventListener("hashchange", () => adoptFragment(window.location, window.history));

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");
createRoot(root).render(
  <StrictMode>
    <BrowserRouter>
      <App />
    </BrowserRouter>
  </StrictMode>,
);
