import { cleanup, render, screen } from "@testing-library/react";
import { afterEach, describe, expect, it } from "vitest";
import type { TrialView } from "../../api/types";
import { ImportancePanel } from "./importance";
import { axesOf } from "./space";
import { search, trial } from "./test-data";

const study = search();
/**
 * Twenty trials over both axes. Their values at the end of the first rung follow one parameter,
 * those after the third epoch the other.
 */
const places = Array.from({ length: 20 }, (_, number) => ({
  number,
  rate: 0.001 * 100 ** ((number * 0.754_877_666) % 1),
  width: 32 + Math.round(480 * ((number * 0.569_840_29) % 1)),
}));
const early = places.map(({ number, rate, width }) => trial(number, { rate, width }, Math.log10(rate)));
const late = places.map(({ number, rate, width }) => {
  const point = { step: 3, values: [width / 512] };
  return trial(number, { rate, width }, 0, { outcome: point, rungs: [point] });
});

const panel = (trials: readonly TrialView[]) => (
  <ImportancePanel search={study} axes={axesOf(study.parameters, trials)} objective={0} trials={trials} />
);
const bars = () => screen.getAllByRole("listitem").map((item) => item.textContent.replace(/[\d.]+$/, ""));

afterEach(cleanup);

describe("the importance of parameters", () => {
  it("is of the values that its caption names, also where as many trials have other ones", async () => {
    const { rerender } = render(panel(early));
    expect(screen.getByRole("status").textContent).toContain("Computing");
    expect(await screen.findByText(/of 20.trials.* after 1.epoch /)).toBeTruthy();
    expect(bars()).toEqual(["rate", "width"]);
    rerender(panel(late));
    // Until the new values are computed, the old bars keep their caption.
    expect(screen.getByText(/ after 1.epoch /)).toBeTruthy();
    expect(bars()).toEqual(["rate", "width"]);
    expect(await screen.findByText(/of 20.trials.* after 3.epochs /)).toBeTruthy();
    expect(bars()).toEqual(["width", "rate"]);
  });

  it("is not told of too few trials, nor where all are equal", async () => {
    const { rerender } = render(panel(early.slice(0, 11)));
    expect(screen.getByText("11 of at least 12 have a value.")).toBeTruthy();
    rerender(panel(places.map(({ number, rate, width }) => trial(number, { rate, width }, 0.5))));
    expect(screen.queryByText("Nothing to tell apart")).toBeNull();
    expect(await screen.findByText("Nothing to tell apart")).toBeTruthy();
  });
});
