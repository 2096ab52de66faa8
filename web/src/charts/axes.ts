// Shared parts of all charts: axes, cursor, and vertical marks at the revisions of a job.
import type uPlot from "uplot";
import { count } from "../words/number";
import type { Colours } from "./plot";

const FONT = "11px system-ui, sans-serif";
/** Width of a digit in FONT. */
const CHARACTER_PX = 6.5;

/** Shared cursor of all charts of a page with the same x axis. */
export function cursor(group: string): uPlot.Cursor {
  return { sync: { key: group, setSeries: false }, y: false, drag: { x: true, y: false }, points: { size: 6 } };
}

/** Margins of the plot; half of the last label of the x axis is to its right. */
export function padding(top: number, kind: "step" | "time"): uPlot.Padding {
  return [top, kind === "time" ? 30 : 20, 0, 0];
}

/** Returns the space for the longest label, which is never cut. */
function labelRoom(values: readonly string[] | null): number {
  const longest = Math.max(0, ...(values ?? []).map((value) => value.length));
  return Math.max(52, Math.ceil(longest * CHARACTER_PX) + 14);
}

export function xAxis(colours: Colours, kind: "step" | "time"): uPlot.Axis {
  const base = {
    stroke: colours.text,
    font: FONT,
    size: 28,
    gap: 4,
    grid: { show: false },
    ticks: { stroke: colours.grid, size: 4 },
  };
  if (kind === "time")
    return {
      ...base,
      space: 64,
      values: (_, splits, _axis, _space, incr) => splits.map((at) => wallClock(at, incr < 60)),
    };
  return { ...base, space: 70, values: (_, splits) => splits.map((step) => compact(step)) };
}

export function yAxis(colours: Colours, format: (value: number) => string): uPlot.Axis {
  return {
    stroke: colours.text,
    font: FONT,
    size: (_, values) => labelRoom(values),
    gap: 4,
    space: 34,
    grid: { stroke: colours.grid, width: 1 },
    ticks: { show: false },
    values: (_, splits) => splits.map((value) => format(value)),
  };
}

/** Returns hours and minutes of the local day, with seconds only for close ticks. */
function wallClock(seconds: number, withSeconds: boolean): string {
  const at = new Date(seconds * 1000);
  const parts = withSeconds ? [at.getHours(), at.getMinutes(), at.getSeconds()] : [at.getHours(), at.getMinutes()];
  return parts.map((part) => String(part).padStart(2, "0")).join(":");
}

/** Formats 12,000 as `12k`, so that labels do not touch. */
export function compact(value: number): string {
  if (Math.abs(value) >= 1e6) return `${trimmed(value / 1e6)}M`;
  if (Math.abs(value) >= 1e4) return `${trimmed(value / 1e3)}k`;
  return Number.isInteger(value) ? count(value) : trimmed(value);
}

function trimmed(value: number): string {
  return value.toFixed(2).replace(/\.?0+$/, "");
}

export interface XMark {
  x: number;
  label: string;
}

/** Draws dashed lines with a short label. A label that would touch the previous one is omitted. */
export function marksPlugin(marks: () => readonly XMark[], colours: Colours): uPlot.Plugin {
  return {
    hooks: {
      draw: (plot) => {
        const { ctx, bbox } = plot;
        const ratio = devicePixelRatio;
        ctx.save();
        ctx.font = `${10 * ratio}px system-ui, sans-serif`;
        ctx.textBaseline = "top";
        ctx.textAlign = "left";
        let free = bbox.left;
        for (const { x, label } of marks()) {
          const left = Math.round(plot.valToPos(x, "x", true));
          if (left < bbox.left || left > bbox.left + bbox.width) continue;
          ctx.strokeStyle = colours.warn;
          ctx.lineWidth = ratio;
          ctx.setLineDash([3 * ratio, 3 * ratio]);
          ctx.beginPath();
          ctx.moveTo(left, bbox.top);
          ctx.lineTo(left, bbox.top + bbox.height);
          ctx.stroke();
          const width = ctx.measureText(label).width + 6 * ratio;
          const at = Math.min(left, bbox.left + bbox.width - width);
          if (at < free) continue;
          ctx.fillStyle = colours.text;
          ctx.fillText(label, at, bbox.top - 14 * ratio);
          free = at + width;
        }
        ctx.restore();
      },
    },
  };
}
