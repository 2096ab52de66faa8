// The frame of every page: navigation, signed-in user, theme, and the state of the live connection.
import { useEffect, type ReactNode } from "react";
import { NavLink, useLocation } from "react-router";
import { me, nodes, tenants } from "../api/calls";
import { useResource } from "../api/resource";
import { signOut, token } from "../api/session";
import { actFor, actingTenant } from "../api/tenant";
import { slotName } from "../live/cluster";
import { useFeedState } from "../live/feed";
import type { StreamState } from "../live/stream";
import { count, plural } from "../words/number";
import { Icon, type IconName } from "./icon";
import { useMe } from "./me";
import { usePoll } from "./poll";
import { setTheme, useTheme, type Theme } from "./theme";

const PAGES: { to: string; label: string; icon: IconName }[] = [
  { to: "/jobs", label: "Jobs", icon: "jobs" },
  { to: "/studies", label: "Studies", icon: "studies" },
  { to: "/schedules", label: "Schedules", icon: "clock" },
  { to: "/nodes", label: "Nodes", icon: "nodes" },
  { to: "/secrets", label: "Secrets", icon: "key" },
  { to: "/submit", label: "Submit", icon: "submit" },
];

export function Shell({ children }: { children: ReactNode }) {
  const mine = useMe();
  const { pathname } = useLocation();
  // A new page starts at its top, like a loaded one.
  useEffect(() => window.scrollTo(0, 0), [pathname]);
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header className="bar">
        <NavLink to="/jobs" className="brand" aria-label="Muster, home">
          <Logo />
          <span>Muster</span>
        </NavLink>
        <nav className="nav" aria-label="Pages">
          {PAGES.map(({ to, label, icon }) => (
            <NavLink
              key={to}
              to={to}
              className={({ isActive }) =>
                isActive || (to === "/jobs" && pathname === "/") ? "nav-link active" : "nav-link"
              }
            >
              <Icon name={icon} />
              {label}
            </NavLink>
          ))}
        </nav>
        <div className="bar-end">
          <Live />
          <span className="who" data-access={mine.access} title={mine.access === "admin" ? "Administrator" : "Member"}>
            <span className="who-user">{mine.user}</span>
            {mine.access === "admin" ? (
              <TenantChoice own={mine.tenant} />
            ) : (
              <span className="muted"> @ {mine.tenant}</span>
            )}
            <InUse key={mine.tenant} />
          </span>
          <ThemeButton />
          <button type="button" className="button button-icon" onClick={signOut} aria-label="Sign out" title="Sign out">
            <Icon name="out" />
          </button>
        </div>
      </header>
      <main id="main" className="main" tabIndex={-1}>
        {children}
      </main>
    </div>
  );
}

const LOOK_EVERY_MS = 10_000;

/** Shows the GPUs or CPU slots in use by the tenant's jobs, and the quota. */
function InUse() {
  const used = useResource("in use", (signal) => me(token() ?? "", signal));
  const cluster = useResource("slot name", nodes);
  usePoll(LOOK_EVERY_MS, used.reload);
  if (used.data?.gpus_in_use === undefined || (cluster.data ?? cluster.error) === null) return null;
  const { gpus_in_use: gpus, gpu_quota: quota } = used.data;
  const slot = slotName((cluster.data ?? []).flatMap((node) => node.gpus));
  const text = quota === null ? plural(gpus, slot) : `${count(gpus)} of ${plural(quota, slot)}`;
  return (
    <span
      className="muted who-use"
      title={
        quota === null
          ? `${slot}s that the tenant's jobs hold; it has no quota`
          : `${slot}s that the tenant's jobs hold, and its quota`
      }
    >
      {" · "}
      {text}
    </span>
  );
}

/** Selects the tenant whose jobs are shown: an administrator may see any tenant's. */
function TenantChoice({ own }: { own: string }) {
  const all = useResource("tenants", tenants).data ?? [own];
  const names = all.includes(own) ? all : [own, ...all];
  if (names.length === 1) return <span className="muted"> @ {own}</span>;
  return (
    <>
      <span className="muted"> @ </span>
      <select
        className="who-tenant"
        aria-label="Tenant"
        title="Whose jobs are shown"
        value={own}
        onChange={(event) => actFor(event.target.value, token())}
      >
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      {actingTenant(token()) !== null && (
        <button
          type="button"
          className="button button-small"
          title="What you do here is done for this tenant, and its members see who it was"
          onClick={() => actFor(null, null)}
        >
          Back to my own
        </button>
      )}
    </>
  );
}

const LIVE: Record<StreamState, { text: string; title: string }> = {
  connecting: { text: "Connecting", title: "Opening the event stream" },
  open: { text: "Live", title: "What you see follows the cluster's events" },
  retrying: { text: "Reconnecting", title: "The event stream was lost; what you see may be old" },
  ended: { text: "Ended", title: "The server has ended the event stream; reload to open it again" },
  refused: { text: "Not live", title: "The server refused the event stream; reload to try again" },
};

function Live() {
  const state = useFeedState();
  return (
    <span className="live" data-state={state} role="status" title={LIVE[state].title}>
      <span className="live-dot" aria-hidden="true" />
      <span className="live-text">{LIVE[state].text}</span>
    </span>
  );
}

const NEXT: Record<Theme, { theme: Theme; icon: IconName }> = {
  system: { theme: "light", icon: "system" },
  light: { theme: "dark", icon: "sun" },
  dark: { theme: "system", icon: "moon" },
};

export function ThemeButton() {
  const theme = useTheme();
  const label = `Theme: ${theme}. Change to ${NEXT[theme].theme}`;
  return (
    <button
      type="button"
      className="button button-icon"
      onClick={() => setTheme(NEXT[theme].theme)}
      aria-label={label}
      title={label}
    >
      <Icon name={NEXT[theme].icon} />
    </button>
  );
}

export function Logo() {
  return (
    <svg className="logo" viewBox="0 0 32 32" width="22" height="22" aria-hidden="true">
      <rect width="32" height="32" rx="7" className="logo-ground" />
      <g className="logo-bars">
        <rect x="7" y="17" width="4.5" height="8" rx="1.2" />
        <rect x="13.75" y="12" width="4.5" height="13" rx="1.2" />
        <rect x="20.5" y="7" width="4.5" height="18" rx="1.2" opacity=".72" />
      </g>
    </svg>
  );
}

function skip(event: { preventDefault: () => void }): void {
  // Done by a script, because the fragment of the address is reserved for the token.
  event.preventDefault();
  document.getElementById("main")?.focus();
}
