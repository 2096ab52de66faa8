// Page to create a study from a document.
import { useNavigate } from "react-router";
import { createStudy } from "../../api/studies";
import { Panel } from "../../ui/panel";
import { useTitle } from "../../ui/title";
import { DocumentPage, Valid } from "../submit/document";
import { STUDY_TEMPLATES } from "../submit/templates";

export function CreateStudyPage() {
  useTitle("New study");
  const navigate = useNavigate();
  return (
    <DocumentPage
      title="New study"
      noun="Study"
      verb={{ text: "Create", busy: "Creating…" }}
      schema="StudySpec"
      start={null}
      templates={STUDY_TEMPLATES}
      send={createStudy}
      onSent={(study) => void navigate(`/studies/${study.id}`)}
      help={<Help />}
      checked={(study) => (
        <Valid document={study.document}>Nothing was created. With every default written out, the study is:</Valid>
      )}
    />
  );
}

function Help() {
  return (
    <Panel title="What it says">
      <dl className="terms">
        <dt>parameters</dt>
        <dd>
          What is sought, and at which <code>field</code> of the job each value goes.
        </dd>
        <dt>searcher</dt>
        <dd>Who proposes the next trial: random, grid, sobol, tpe, gp, cma_es, evolution, or external.</dd>
        <dt>stopper</dt>
        <dd>
          How far each trial trains: none, median, successive_halving, hyperband, asha, hyper_drive, or pbt, whose worst
          trials begin anew from the best ones&apos; checkpoints.
        </dd>
        <dt>budget</dt>
        <dd>How far a trial trains at most, in epochs or steps.</dd>
        <dt>job</dt>
        <dd>
          A job document without version, name and labels. Without it trials are trained outside, by ask and tell.
        </dd>
      </dl>
      <p className="muted">
        A dry run checks the space, the search and the job at the ends of every range, and creates nothing.
      </p>
    </Panel>
  );
}
