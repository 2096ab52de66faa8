//! A study on slots without a cluster: the epochs of its trials take their measured times and
//! follow one another, on slots that are always available. The start of a job and checkpoints are
//! not included.

use crate::training::{EpochResult, Trainings};
use muster_model::spec::JobSpec;
use muster_model::study::StudySpec;
use muster_search::{SearchAction, SearchEvent, Study};
use std::collections::BTreeMap;

/// Result of a study.
pub struct StudyResult {
    /// Best accuracy of any epoch.
    pub best: f64,
    /// Final accuracy of the study's best trial.
    pub last: f64,
    /// Slot-seconds that trials used until the study ended.
    pub slot_seconds: f64,
    pub trials: usize,
    /// Total number of trained epochs.
    pub epochs: u64,
    /// Slot-seconds until an epoch reached the accuracy; pairs of accuracy and time, ascending in
    /// both.
    records: Vec<(f64, f64)>,
    /// Document of the best trial.
    pub job: JobSpec,
}

impl StudyResult {
    /// Slot-seconds after which the study reached `accuracy`.
    pub fn reached(&self, accuracy: f64) -> Option<f64> {
        let mut records = self.records.iter();
        Some(records.find(|(best, _)| *best >= accuracy)?.1)
    }
}

/// Trial in its slot.
struct RunningTrial {
    job: JobSpec,
    /// Number of epochs that it has trained.
    done: u64,
    budget: u64,
    next: EpochResult,
    ends: f64,
}

struct TrialSlots<'a> {
    document: &'a StudySpec,
    study: Study,
    trainings: &'a mut Trainings,
    running: BTreeMap<u32, RunningTrial>,
    done: BTreeMap<u32, u64>,
    now: f64,
    course: Option<StudyResult>,
    held: f64,
    epochs: u64,
}

/// Runs the study to its end.
pub fn carry_out(document: &StudySpec, trainings: &mut Trainings) -> StudyResult {
    document.validate().expect("the bench's document is right");
    let mut slots = TrialSlots {
        document,
        study: Study::new(document.search.clone()).expect("a right document"),
        trainings,
        running: BTreeMap::new(),
        done: BTreeMap::new(),
        now: 0.0,
        course: None,
        held: 0.0,
        epochs: 0,
    };
    slots.tell(SearchEvent::Started);
    while slots.step() {}
    slots.trainings.rest();
    let mut course = slots.course.expect("an epoch was trained");
    course.slot_seconds = slots.held;
    course.trials = slots.study.trials().len();
    course.epochs = slots.epochs;
    let best = slots.study.best();
    let loss = best.first().and_then(|trial| trial.loss());
    course.last = -loss.expect("some trial came to the end of a rung");
    course
}

impl TrialSlots<'_> {
    /// Processes the end of the epoch that ends first; `false` if no trial is training.
    fn step(&mut self) -> bool {
        let first = self
            .running
            .iter()
            .min_by(|(_, a), (_, b)| a.ends.total_cmp(&b.ends));
        let Some((&number, one)) = first else {
            return false;
        };
        self.held += (one.ends - self.now) * self.running.len() as f64;
        self.now = one.ends;
        let one = self.running.get_mut(&number).expect("it trains");
        one.done += 1;
        self.epochs += 1;
        let (step, accuracy, is_end) = (one.done, one.next.accuracy, one.done == one.budget);
        self.record(number, accuracy);
        self.tell(SearchEvent::Reported {
            trial: number,
            step,
            values: vec![accuracy],
        });
        if is_end && let Some(one) = self.running.remove(&number) {
            self.done.insert(number, one.done);
            self.tell(SearchEvent::Finished {
                trial: number,
                step,
                values: Vec::new(),
                exhausted: false,
            });
        } else if let Some(one) = self.running.get_mut(&number) {
            one.next = self.trainings.epoch(&one.job, step as usize);
            one.ends = self.now + one.next.seconds;
        }
        true
    }

    fn record(&mut self, number: u32, accuracy: f64) {
        let best = self.course.as_ref().map_or(-1.0, |course| course.best);
        if accuracy <= best {
            return;
        }
        let job = self.running[&number].job.clone();
        let course = self.course.get_or_insert_with(|| StudyResult {
            best,
            last: best,
            slot_seconds: 0.0,
            trials: 0,
            epochs: 0,
            records: Vec::new(),
            job: job.clone(),
        });
        course.best = accuracy;
        course.job = job;
        course.records.push((accuracy, self.held));
    }

    fn tell(&mut self, event: SearchEvent) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for action in self.study.apply(event).expect("a fact") {
                match action {
                    SearchAction::Create { trial, budget, .. } => self.begin(trial, budget),
                    SearchAction::Continue { trial, budget } => self.begin(trial, budget),
                    SearchAction::Stop { trial } => {
                        if self.running.remove(&trial).is_some() {
                            events.push(SearchEvent::Stopped { trial });
                        }
                    }
                    SearchAction::Finish => {}
                }
            }
        }
    }

    fn begin(&mut self, number: u32, budget: u64) {
        let trial = &self.study.trials()[number as usize];
        let space = self.study.space();
        let job = self
            .document
            .trial(space, number, &trial.point, trial.seed, budget);
        let job = job.expect("the study was checked");
        let done = self.done.get(&number).copied().unwrap_or(0);
        let next = self.trainings.epoch(&job, done as usize);
        let ends = self.now + next.seconds;
        let one = RunningTrial {
            job,
            done,
            budget,
            next,
            ends,
        };
        self.running.insert(number, one);
    }
}
