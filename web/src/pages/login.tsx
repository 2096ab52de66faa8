// The sign-in page: checks a token with the API and stores it.
import { useState, type SyntheticEvent } from "react";
import { me } from "../api/calls";
import { fromThrown, type ApiError } from "../api/problem";
import { hasExpired, signIn } from "../api/session";
import { Logo, ThemeButton } from "../ui/shell";
import { useTitle } from "../ui/title";

export function LoginPage() {
  useTitle("Sign in");
  const [value, setValue] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const submit = (event: SyntheticEvent) => {
    event.preventDefault();
    const token = value.trim();
    if (token === "") return;
    setBusy(true);
    me(token).then(
      () => signIn(token),
      (thrown: unknown) => {
        setBusy(false);
        setError(fromThrown(thrown));
      },
    );
  };
  const message =
    error === null ? (hasExpired() ? "Your token is no longer accepted. Sign in again." : null) : said(error);
  return (
    <main className="gate">
      <form className="login" onSubmit={submit}>
        <div className="login-head">
          <Logo />
          <h1>Sign in to Muster</h1>
          <ThemeButton />
        </div>
        <label htmlFor="token">Access token</label>
        <input
          id="token"
          type="password"
          autoComplete="current-password"
          spellCheck={false}
          value={value}
          onChange={(event) => setValue(event.target.value)}
          aria-invalid={error !== null}
          aria-describedby="token-help"
        />
        <p
          id="token-help"
          className={message === null ? "login-help" : "login-help login-error"}
          role={message === null ? undefined : "alert"}
        >
          {message ?? "An administrator gives you one; muster up prints the first."}
        </p>
        <button type="submit" className="button button-primary" disabled={busy || value.trim() === ""}>
          {busy ? "Signing in…" : "Sign in"}
        </button>
      </form>
    </main>
  );
}

function said(error: ApiError): string {
  return error.status === 401 ? "This token is not known, or no longer valid." : (error.detail ?? error.title);
}
