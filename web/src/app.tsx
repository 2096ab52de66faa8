// Routes; without a token only the sign-in page is shown.
import { lazy, Suspense } from "react";
import { Route, Routes, useLocation } from "react-router";
import { me } from "./api/calls";
import { useResource } from "./api/resource";
import { useToken } from "./api/session";
import { useActingTenant } from "./api/tenant";
import { FeedProvider } from "./live/feed";
import { JobsPage } from "./pages/jobs/page";
import { LoginPage } from "./pages/login";
import { NotFoundPage } from "./pages/not-found";
import { NodesPage } from "./pages/nodes/page";
import { Boundary } from "./ui/boundary";
import { Shell } from "./ui/shell";
import { Failure, Loading } from "./ui/states";
import { MeContext } from "./ui/me";

// Loaded on demand: the job page needs the chart library, the study pages their charts, the submit
// page the example.
const JobPage = lazy(() => import("./pages/job/page").then((module) => ({ default: module.JobPage })));
const StudiesPage = lazy(() => import("./pages/studies/page").then((module) => ({ default: module.StudiesPage })));
const CreateStudyPage = lazy(() =>
  import("./pages/studies/create").then((module) => ({ default: module.CreateStudyPage })),
);
const StudyPage = lazy(() => import("./pages/study/page").then((module) => ({ default: module.StudyPage })));
const ComparePage = lazy(() => import("./pages/compare/page").then((module) => ({ default: module.ComparePage })));
const SchedulesPage = lazy(() =>
  import("./pages/schedules/page").then((module) => ({ default: module.SchedulesPage })),
);
const SecretsPage = lazy(() => import("./pages/secrets/page").then((module) => ({ default: module.SecretsPage })));
const SubmitPage = lazy(() => import("./pages/submit/page").then((module) => ({ default: module.SubmitPage })));

export function App() {
  const token = useToken();
  const tenant = useActingTenant(token);
  // Everything shown belongs to one tenant, so a change of the tenant reloads it.
  return token === null ? <LoginPage /> : <Signed key={`${token} ${tenant ?? ""}`} token={token} />;
}

function Signed({ token }: { token: string }) {
  const { pathname } = useLocation();
  const who = useResource(token, (signal) => me(token, signal));
  if (who.error !== null) {
    return (
      <main className="gate">
        <Failure error={who.error} retry={who.reload} />
      </main>
    );
  }
  if (who.data === null) {
    return (
      <main className="gate">
        <Loading label="Signing in" />
      </main>
    );
  }
  return (
    <MeContext.Provider value={who.data}>
      <FeedProvider>
        <Shell>
          <Boundary place={pathname}>
            <Suspense fallback={<Loading rows={6} />}>
              <Routes>
                <Route index element={<JobsPage />} />
                <Route path="jobs" element={<JobsPage />} />
                <Route path="jobs/:id" element={<JobPage />} />
                <Route path="compare" element={<ComparePage />} />
                <Route path="studies" element={<StudiesPage />} />
                <Route path="studies/new" element={<CreateStudyPage />} />
                <Route path="studies/:id" element={<StudyPage />} />
                <Route path="nodes" element={<NodesPage />} />
                <Route path="schedules" element={<SchedulesPage />} />
                <Route path="secrets" element={<SecretsPage />} />
                <Route path="submit" element={<SubmitPage />} />
                <Route path="*" element={<NotFoundPage />} />
              </Routes>
            </Suspense>
          </Boundary>
        </Shell>
      </FeedProvider>
    </MeContext.Provider>
  );
}
