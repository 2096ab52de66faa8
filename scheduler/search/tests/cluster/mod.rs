//! Machines of different speed that train the trials of a study on synthetic learning curves until
//! the study has finished.

use muster_model::study::{SearchSpec, Space};
use muster_search::{SearchAction, SearchEvent, SearchTrial, Study, TrialCheckpoint, TrialNumber};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Result of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Story {
    pub actions: Vec<SearchAction>,
    /// Trained budget units.
    pub trained: u64,
    pub created: BTreeSet<TrialNumber>,
    /// Maximum number of simultaneous slots.
    pub widest: usize,
}

struct Work {
    trial: TrialNumber,
    step: u64,
    budget: u64,
}

/// Time of each machine's next report, and the order of starts as a tie-break.
type Agenda = BTreeMap<(u64, u64), Work>;

pub struct Cluster {
    pub speed_seed: u64,
    /// Every n-th trial fails at its second step.
    pub fails: Option<u32>,
    story: Story,
    agenda: Agenda,
    now: u64,
    count: u64,
    trained: BTreeMap<TrialNumber, u64>,
}

/// Document with two numbers and a choice with a child parameter, merged with `more`.
pub fn spec(more: Value) -> SearchSpec {
    let mut document = json!({
        "objectives": [{"metric": "loss", "goal": "minimize"}],
        "parameters": [
            {"name": "rate", "type": "float", "low": 1e-4, "high": 1.0, "log": true},
            {"name": "width", "type": "int", "low": 8, "high": 64, "step": 8},
            {"name": "optimizer", "type": "categorical", "choices": ["sgd", "adam"]},
            {"name": "momentum", "type": "float", "low": 0.0, "high": 0.99,
             "when": {"parameter": "optimizer", "is": ["sgd"]}},
        ],
        "trials": 60,
        "concurrency": 4,
    });
    for (key, value) in more.as_object().expect("fields") {
        document[key] = value.clone();
    }
    serde_json::from_value(document).expect("a document")
}

/// Loss of a trial after `step` units: it falls towards a limit that depends on the parameters.
pub fn loss(space: &Space, trial: &SearchTrial, step: u64) -> f64 {
    let [rate, width, momentum] = [0, 1, 3].map(|d: usize| {
        let value = trial.point.get(d).copied().flatten();
        value.map_or(0.3, |v| space.dimensions[d].domain.unit(v))
    });
    let end = (rate - 0.6).powi(2) + 0.3 * (width - 0.4).powi(2) + 0.1 * (momentum - 0.9).powi(2);
    end + 1.0 / (1.0 + step as f64 * (0.2 + rate))
}

impl Cluster {
    pub fn new(speed_seed: u64) -> Self {
        Self {
            speed_seed,
            fails: None,
            story: Story::default(),
            agenda: Agenda::new(),
            now: 0,
            count: 0,
            trained: BTreeMap::new(),
        }
    }

    /// Runs the study to its end. Before each event `between` may replace the study by its saved
    /// copy.
    pub fn run(
        mut self,
        study: Study,
        mut between: impl FnMut(Study, u64) -> Study,
    ) -> (Study, Story) {
        let mut study = study;
        let actions = study.apply(SearchEvent::Started).expect("it may begin");
        self.carry_out(&study, actions);
        let mut events = 0;
        while let Some(((now, _), work)) = self.agenda.pop_first() {
            self.now = now;
            events += 1;
            assert!(events < 1_000_000, "a study without an end");
            study = between(study, events);
            let event = self.happens(&study, &work);
            let goes_on = matches!(event, SearchEvent::Reported { .. });
            if goes_on {
                self.schedule(Work {
                    step: work.step + 1,
                    ..work
                });
            }
            let actions = study.apply(event).expect("a fact about its trials");
            self.carry_out(&study, actions);
            let held = study.trials().iter().filter(|t| t.holds_slot()).count();
            self.story.widest = self.story.widest.max(held);
        }
        (study, self.story)
    }

    fn happens(&mut self, study: &Study, work: &Work) -> SearchEvent {
        let trial = work.trial;
        let entry = &study.trials()[trial as usize];
        if self.fails.is_some_and(|n| trial % n == n - 1) && work.step == 2 {
            return SearchEvent::Failed { trial };
        }
        let (step, values) = (work.step, vec![loss(study.space(), entry, work.step)]);
        self.story.trained += 1;
        self.trained.insert(trial, step);
        if step >= work.budget {
            return SearchEvent::Finished {
                trial,
                step,
                values,
                exhausted: false,
            };
        }
        SearchEvent::Reported {
            trial,
            step,
            values,
        }
    }

    fn schedule(&mut self, work: Work) {
        let mixed = (u64::from(work.trial) + 1)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(self.speed_seed)
            .wrapping_mul(0xbf58_476d_1ce4_e5b9);
        self.count += 1;
        let due = self.now + 100 + (mixed >> 40) % 900;
        self.agenda.insert((due, self.count), work);
    }

    fn carry_out(&mut self, study: &Study, actions: Vec<SearchAction>) {
        for action in actions {
            match &action {
                SearchAction::Create {
                    trial,
                    budget,
                    from,
                    ..
                } => {
                    assert!(self.story.created.insert(*trial), "trial {trial} twice");
                    let step = from.map_or(0, |TrialCheckpoint { trial, step }| {
                        assert!(self.trained[&trial] >= step, "no such checkpoint");
                        step
                    });
                    self.begin(*trial, step, *budget);
                }
                SearchAction::Continue { trial, budget } => {
                    self.begin(*trial, self.trained[trial], *budget);
                }
                SearchAction::Stop { trial } => {
                    let running = self.agenda.iter().find(|(_, w)| w.trial == *trial);
                    if let Some(key) = running.map(|(key, _)| *key) {
                        let work = self.agenda.remove(&key).expect("just found");
                        // The trial ends a moment later with its last event.
                        self.agenda
                            .insert((self.now, key.1), Work { budget: 0, ..work });
                    }
                }
                SearchAction::Finish => {}
            }
            self.story.actions.push(action);
        }
        assert!(
            study
                .trials()
                .iter()
                .all(|t| study.space().contains(&t.point))
        );
    }

    fn begin(&mut self, trial: TrialNumber, step: u64, budget: u64) {
        assert!(
            budget > step,
            "trial {trial} has nothing to train: {step} of {budget}"
        );
        self.schedule(Work {
            trial,
            step: step + 1,
            budget,
        });
    }
}
