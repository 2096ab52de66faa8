// Icons of the page: 16 px strokes in the text colour. Hidden from screen readers, because each is
// beside its text.

const PATHS = {
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  nodes: "M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z",
  studies: "M2.5 13.5V2.5M2.5 13.5h11M4.5 10.5h.1M6.5 7.5h.1M9 9h.1M10.5 5h.1M13 3.5h.1",
  clock: "M8 2a6 6 0 1 0 0 12A6 6 0 0 0 8 2zM8 4.8V8l2.3 1.6",
  key: "M5.2 7.5a2.7 2.7 0 1 0 0 5.4 2.7 2.7 0 0 0 0-5.4zM7.2 8.3 13 2.5M10.5 5l2 2",
  submit: "M8 3v10M3 8h10",
  sun: "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3.1 3.1l1 1M11.9 11.9l1 1M3.1 12.9l1-1M11.9 4.1l1-1",
  moon: "M13.2 9.6A5.6 5.6 0 0 1 6.4 2.8a5.6 5.6 0 1 0 6.8 6.8z",
  system: "M2 3h12v8H2zM6 13.5h4",
  out: "M9.5 5V3H3v10h6.5v-2M6.5 8H14M11.5 5.5 14 8l-2.5 2.5",
  pause: "M5.5 3.5v9M10.5 3.5v9",
  resume: "M5 3.2v9.6L12.5 8z",
  cancel: "M4 4l8 8M12 4l-8 8",
  delete: "M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 8.5h5.8l.6-8.5",
  download: "M8 2.5v7.5M4.8 7 8 10.2 11.2 7M3 13h10",
  search: "M7 2.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4zM10.2 10.2 13.5 13.5",
  right: "M6 3.5 10.5 8 6 12.5",
  left: "M10 3.5 5.5 8 10 12.5",
  warning: "M8 2.2 14.4 13.4H1.6zM8 6.4v3.4M8 11.4v.3",
  check: "M3 8.5 6.5 12 13 4.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg className="icon" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true" focusable="false">
      <path
        d={PATHS[name]}
        fill="none"
        stroke="currentColor"
        strokeWidth="1.5"
        strokeLinecap="round"
        strokeLinejoin="round"
      />
    </svg>
  );
}
