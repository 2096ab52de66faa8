// uPlot in React: a canvas that follows its box, its data and the theme.
import { useEffect, useRef } from "react";
import uPlot from "uplot";
import { useShownTheme } from "../ui/theme";

export interface Colours {
  text: string;
  grid: string;
  accent: string;
  second: string;
  third: string;
  warn: string;
  /** Colours of jobs, by their place. */
  jobs: readonly string[];
}

/** Number of distinct colours of jobs. */
const JOB_COLOURS = 10;

interface Props {
  /** Name of the chart for screen readers, which read its numbers from the text beside it. */
  label: string;
  data: uPlot.AlignedData;
  /** Options. Rebuilt when `shape` or the theme changes, and not with every point. */
  options: (colours: Colours) => Omit<uPlot.Options, "width" | "height">;
  shape: string;
  height: number;
}

export function Plot({ label, data, options, shape, height }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const theme = useShownTheme();
  const latest = useRef({ data, options });
  useEffect(() => {
    latest.current = { data, options };
  });
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const width = () => Math.max(120, Math.floor(element.clientWidth));
    const made = new uPlot(
      { ...latest.current.options(coloursOf(element)), width: width(), height },
      latest.current.data,
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: width(), height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, theme, height]);
  useEffect(() => {
    plot.current?.setData(data);
  }, [data]);
  return <div className="plot" ref={box} role="img" aria-label={label} style={{ height }} />;
}

function coloursOf(element: Element): Colours {
  const style = getComputedStyle(element);
  const named = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: named("--text-muted"),
    grid: named("--chart-grid"),
    accent: named("--chart-1"),
    second: named("--chart-2"),
    third: named("--chart-3"),
    warn: named("--chart-mark"),
    jobs: Array.from({ length: JOB_COLOURS }, (_, place) => named(`--job-${place}`)),
  };
}
