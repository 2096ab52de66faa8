// The tenant's secrets for programs. Values are sent and never shown: no route returns them.
import { useState, type SyntheticEvent } from "react";
import { deleteSecret, secrets, setSecret } from "../../api/calls";
import { fromThrown, type ApiError } from "../../api/problem";
import { useResource } from "../../api/resource";
import type { SecretView } from "../../api/types";
import { Confirm, type Question } from "../../ui/confirm";
import { useNow } from "../../ui/now";
import { Panel } from "../../ui/panel";
import { Empty, Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { who } from "../../words/event";
import { plural } from "../../words/number";
import { age, instant } from "../../words/time";

export function SecretsPage() {
  useTitle("Secrets");
  const list = useResource("secrets", secrets);
  const [question, ask] = useState<Question | null>(null);
  const remove = ({ name, open_jobs: jobs, open_studies: studies }: SecretView) => {
    const isUsed = jobs + studies > 0;
    const users = [
      ...(jobs > 0 ? [plural(jobs, "open job")] : []),
      ...(studies > 0 ? [plural(studies, "study", "studies")] : []),
    ];
    ask({
      title: `Delete ${name}?`,
      text: isUsed
        ? `${users.join(" and ")} name it: their programs fail at their next start. The value is lost.`
        : "No open job or study names it. The value is lost.",
      verb: "Delete it",
      danger: true,
      act: async () => {
        await deleteSecret(name, isUsed);
        list.reload();
      },
    });
  };
  return (
    <div className="page">
      <div className="page-head">
        <h1>Secrets</h1>
      </div>
      <p className="muted">
        A program whose document names a secret in <code>command.secrets</code> receives its value when it starts, as a
        variable or a file. <code>muster run --secret NAME</code> names one.
      </p>
      {list.error !== null && list.data === null ? <Failure error={list.error} retry={list.reload} /> : null}
      {list.loading ? <Loading label="Loading secrets" rows={3} /> : null}
      {list.data === null ? null : list.data.length === 0 ? (
        <Empty title="No secrets yet">
          <p>
            Store one below, or from a terminal: <code>muster secrets set HF_TOKEN</code>
          </p>
        </Empty>
      ) : (
        <SecretTable secrets={list.data} onDelete={remove} />
      )}
      {list.data === null ? null : <Store known={list.data} onStored={list.reload} />}
      {question === null ? null : <Confirm question={question} onClose={() => ask(null)} />}
    </div>
  );
}

interface TableProps {
  secrets: readonly SecretView[];
  onDelete: (secret: SecretView) => void;
}

function SecretTable({ secrets: all, onDelete }: TableProps) {
  const now = useNow();
  return (
    <div className="table-wrap">
      <table className="table">
        <thead>
          <tr>
            <th scope="col">Name</th>
            <th scope="col" className="right">
              Version
            </th>
            <th scope="col">Stored</th>
            <th scope="col">By</th>
            <th scope="col" className="right">
              Open jobs
            </th>
            <th scope="col" className="right">
              Open studies
            </th>
            <th scope="col">
              <span className="sr-only">Delete</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {all.map((secret) => (
            <tr key={secret.name}>
              <th scope="row" className="mono">
                {secret.name}
              </th>
              <td className="right num">{secret.version}</td>
              <td title={instant(secret.updated_at)}>{age(secret.updated_at, now)} ago</td>
              <td>{who(secret.updated_by)}</td>
              <td className="right num">{secret.open_jobs}</td>
              <td className="right num">{secret.open_studies}</td>
              <td className="right">
                <button
                  type="button"
                  className="button button-small"
                  aria-label={`Delete ${secret.name}`}
                  onClick={() => onDelete(secret)}
                >
                  Delete
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** Stores a new secret, or a new version of one. */
function Store({ known, onStored }: { known: readonly SecretView[]; onStored: () => void }) {
  const [name, setName] = useState("");
  const [value, setValue] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<ApiError | null>(null);
  const isKnown = known.some((secret) => secret.name === name);
  const go = (event: SyntheticEvent) => {
    event.preventDefault();
    setBusy(true);
    setSecret(name, value).then(
      () => {
        setBusy(false);
        setError(null);
        setName("");
        setValue("");
        onStored();
      },
      (thrown: unknown) => {
        setBusy(false);
        setError(fromThrown(thrown));
      },
    );
  };
  return (
    <Panel title="Store a secret">
      <form className="secret-form" onSubmit={go} autoComplete="off">
        <label>
          Name
          <input
            type="text"
            value={name}
            required
            pattern="[A-Za-z_][A-Za-z0-9_.\-]{0,62}"
            title="1 to 63 characters of A-Z, a-z, 0-9, _, . and -, beginning with a letter or _"
            spellCheck={false}
            autoComplete="off"
            placeholder="HF_TOKEN"
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <label>
          Value
          {/* A field of one line would remove the line breaks of a key. */}
          <textarea
            className="secret-value"
            value={value}
            required
            rows={1}
            spellCheck={false}
            autoComplete="off"
            onChange={(event) => setValue(event.target.value)}
          />
        </label>
        <button type="submit" className="button button-primary" disabled={busy}>
          {busy ? "Storing…" : isKnown ? "Replace" : "Store"}
        </button>
      </form>
      {isKnown ? (
        <p className="muted">Programs that run keep the present value; later starts get the new one.</p>
      ) : null}
      {error === null ? null : <Failure error={error} />}
    </Panel>
  );
}
