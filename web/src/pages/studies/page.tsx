// All studies of the tenant, newest first.
import { Link, useSearchParams } from "react-router";
import { useResource } from "../../api/resource";
import { studies } from "../../api/studies";
import { useLive } from "../../live/feed";
import { Icon } from "../../ui/icon";
import { usePoll } from "../../ui/poll";
import { Empty, Failure, Loading } from "../../ui/states";
import { useTitle } from "../../ui/title";
import { isOver } from "../../words/study";
import { StudyTable } from "./table";

const POLL_MS = 5000;

export function StudiesPage() {
  useTitle("Studies");
  const [params] = useSearchParams();
  const after = params.get("page");
  const list = useResource(after ?? "first", (signal) => studies(after, signal));
  const moving = list.data?.items.some((study) => !isOver(study.phase)) ?? true;
  usePoll(moving ? POLL_MS : 6 * POLL_MS, list.reload);
  useLive(() => undefined, list.reload);
  return (
    <div className="page">
      <div className="page-head">
        <h1>Studies</h1>
        <div className="actions">
          <Link className="button button-primary" to="/studies/new">
            <Icon name="submit" /> New study
          </Link>
        </div>
      </div>
      {list.error !== null ? <Failure error={list.error} retry={list.reload} /> : null}
      {list.loading ? <Loading label="Loading studies" rows={6} /> : null}
      {list.data === null ? null : list.data.items.length === 0 ? (
        <NoStudies later={after !== null} />
      ) : (
        <StudyTable studies={list.data.items} />
      )}
      {after === null && (list.data?.continue ?? null) === null ? null : (
        <nav className="pager" aria-label="Pages of studies">
          {after === null ? null : (
            <Link className="button" to="/studies">
              <Icon name="left" /> First page
            </Link>
          )}
          {list.data === null || list.data.continue === null ? null : (
            <Link className="button" to={{ search: new URLSearchParams({ page: list.data.continue }).toString() }}>
              Older studies <Icon name="right" />
            </Link>
          )}
        </nav>
      )}
    </div>
  );
}

function NoStudies({ later }: { later: boolean }) {
  if (later) return <Empty title="No older studies" />;
  return (
    <Empty title="No studies yet">
      <p>
        A study searches for the parameters with which a job does best. <Link to="/studies/new">Create one here</Link>,
        or from a terminal: <code>muster study create examples/studies/asha.yaml</code>
      </p>
    </Empty>
  );
}
