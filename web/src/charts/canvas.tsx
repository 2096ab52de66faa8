// A canvas in React that follows its box and the theme. The marks of the pointer are drawn on a
// second canvas above, so that thousands of lines are drawn only when they change.
import { useEffect, useRef, useState, type PointerEvent } from "react";
import { useShownTheme } from "../ui/theme";

export interface Size {
  width: number;
  height: number;
}

export interface Inks {
  text: string;
  muted: string;
  grid: string;
  surface: string;
  accent: string;
  second: string;
  third: string;
  mark: string;
  /** Colours from worst to best. */
  ramp: readonly string[];
  /** Colours of rungs, the first rung first. */
  rungs: readonly string[];
}

/** Size in CSS pixels; the canvas is scaled to the screen's pixels. */
export type Draw = (context: CanvasRenderingContext2D, size: Size, inks: Inks) => void;

export interface At {
  x: number;
  y: number;
}

interface Props {
  /** Name of the chart for screen readers, which read its numbers from the table below. */
  label: string;
  height: number;
  className?: string;
  /** Draws the chart. A new function causes a redraw, so callers memoise it. */
  draw: Draw;
  over?: Draw;
  onMove?: (at: At | null, size: Size) => void;
  onDown?: (at: At, size: Size) => void;
  onUp?: (at: At, size: Size) => void;
}

export function Canvas({ label, height, className = "", draw, over, onMove, onDown, onUp }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const below = useRef<HTMLCanvasElement>(null);
  const above = useRef<HTMLCanvasElement>(null);
  const theme = useShownTheme();
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const element = box.current;
    if (element === null) return undefined;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    setWidth(Math.floor(element.clientWidth));
    return () => observer.disconnect();
  }, []);
  useEffect(() => paint(below.current, { width, height }, draw), [draw, width, height, theme]);
  useEffect(() => paint(above.current, { width, height }, over), [over, width, height, theme]);
  const at = (event: PointerEvent<HTMLDivElement>): At => {
    const rect = event.currentTarget.getBoundingClientRect();
    return { x: event.clientX - rect.left, y: event.clientY - rect.top };
  };
  const size = { width, height };
  return (
    <div
      ref={box}
      className={`canvas ${className}`}
      role="img"
      aria-label={label}
      style={{ height }}
      onPointerMove={(event) => onMove?.(at(event), size)}
      onPointerLeave={() => onMove?.(null, size)}
      onPointerDown={(event) => {
        if (onDown === undefined) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        onDown(at(event), size);
      }}
      onPointerUp={(event) => onUp?.(at(event), size)}
    >
      <canvas ref={below} />
      <canvas ref={above} />
    </div>
  );
}

function paint(canvas: HTMLCanvasElement | null, { width, height }: Size, draw: Draw | undefined): void {
  const context = canvas?.getContext("2d") ?? null;
  if (canvas === null || context === null || width === 0) return;
  const ratio = window.devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  if (draw === undefined) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.font = "11px system-ui, sans-serif";
  draw(context, { width, height }, inksOf(canvas));
}

function inksOf(element: Element): Inks {
  const style = getComputedStyle(element);
  const named = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: named("--text"),
    muted: named("--text-muted"),
    grid: named("--chart-grid"),
    surface: named("--surface"),
    accent: named("--chart-1"),
    second: named("--chart-2"),
    third: named("--chart-3"),
    mark: named("--chart-mark"),
    ramp: [named("--ramp-0"), named("--ramp-1"), named("--ramp-2"), named("--ramp-3"), named("--ramp-4")],
    rungs: [0, 1, 2, 3, 4, 5, 6, 7].map((rung) => named(`--job-${rung}`)),
  };
}

/**
 * Returns the ramp's colour for a rank of 0 to 1. Five steps are easier to distinguish than a
 * gradient.
 */
export function rankInk(inks: Inks, rank: number | undefined): string {
  if (rank === undefined) return inks.mark;
  return inks.ramp[Math.min(inks.ramp.length - 1, Math.floor(rank * inks.ramp.length))] ?? inks.mark;
}
