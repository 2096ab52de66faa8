// Page for an unknown address.
import { Link } from "react-router";
import { Empty } from "../ui/states";
import { useTitle } from "../ui/title";

export function NotFoundPage() {
  useTitle("Not found");
  return (
    <div className="page">
      <h1 className="sr-only">Not found</h1>
      <Empty title="There is no page at this address">
        <p>
          Go to the <Link to="/jobs">list of jobs</Link>.
        </p>
      </Empty>
    </div>
  );
}
