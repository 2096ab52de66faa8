//! Compares stored forecasts with real times and prints the result.

use crate::work::WorkloadDocument;
use muster_model::forecast::Interval;
use muster_model::id::JobId;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use time::OffsetDateTime;

/// Real times of a job that succeeded.
pub struct ActualTimes {
    pub document: WorkloadDocument,
    pub started_at: OffsetDateTime,
    pub finished_at: OffsetDateTime,
}

/// Forecast of a job in a list.
pub struct ListedForecast {
    pub job: JobId,
    pub at: OffsetDateTime,
    pub has_started: bool,
    pub start: Option<Interval>,
    pub finish: Option<Interval>,
}

/// Answer to a plan of a job that was submitted directly after it.
pub struct PlanAnswer {
    pub job: JobId,
    pub made_at: OffsetDateTime,
    pub finish: Option<Interval>,
    /// Earlier submissions of the same document.
    pub runs_before: usize,
}

/// Interval, or none, and the real time.
#[derive(Clone, Copy)]
struct ForecastCase {
    job: JobId,
    document: WorkloadDocument,
    at: OffsetDateTime,
    has_started: bool,
    interval: Option<Interval>,
    came_at: OffsetDateTime,
}

impl ForecastCase {
    fn left_s(&self, at: OffsetDateTime) -> f64 {
        (at - self.at).as_seconds_f64().max(0.0)
    }

    /// Interval that is shown as one.
    fn shown(&self) -> Option<Interval> {
        self.interval
            .filter(|interval| !interval.seen_at(self.at).unsure)
    }

    /// Seconds until the median.
    fn ahead_s(&self) -> Option<f64> {
        self.shown().map(|interval| self.left_s(interval.p50))
    }
}

pub fn print(came: &BTreeMap<JobId, ActualTimes>, looks: &[ListedForecast], plans: &[PlanAnswer]) {
    println!(
        "{:<34} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}",
        "", "hold %", "early", "late", "unsure", "none", "jobs", "looks"
    );
    let ends = cases(came, looks, true);
    row("ends", &ends, |_| true);
    row("  of programs", &ends, |case| !case.document.is_engine());
    row("  of engine jobs", &ends, |case| case.document.is_engine());
    row("  while the job waits", &ends, |case| !case.has_started);
    row("  while the job runs", &ends, |case| case.has_started);
    horizons(&ends);
    let mut names: Vec<String> = ends.iter().map(|case| case.document.name()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let title = format!("  {name}");
        row(&title, &ends, |case| case.document.name() == name);
    }
    let starts = cases(came, looks, false);
    row("starts", &starts, |_| true);
    row("  of programs", &starts, |case| !case.document.is_engine());
    row("  of engine jobs", &starts, |case| {
        case.document.is_engine()
    });
    horizons(&starts);
    for (title, from, to) in [
        ("plans, document never run", 0, 1),
        ("plans, after one run", 1, 2),
        ("plans, after more", 2, usize::MAX),
    ] {
        let some = plans
            .iter()
            .filter(|plan| (from..to).contains(&plan.runs_before));
        let cases: Vec<ForecastCase> = some.filter_map(|plan| planned(came, plan)).collect();
        row(title, &cases, |_| true);
        println!("{:<34} {}", "", factor(&cases));
    }
}

fn horizons(cases: &[ForecastCase]) {
    for (title, from_s, to_s) in [
        ("  foreseen within 10 s", 0.0, 10.0),
        ("  foreseen in 10 to 30 s", 10.0, 30.0),
        ("  foreseen in 30 to 120 s", 30.0, 120.0),
        ("  foreseen later", 120.0, f64::INFINITY),
    ] {
        row(title, cases, |case| {
            let ahead_s = case.ahead_s();
            ahead_s.is_some_and(|ahead_s| ahead_s >= from_s && ahead_s < to_s)
        });
    }
}

/// Polls of a job before the event.
fn cases(
    came: &BTreeMap<JobId, ActualTimes>,
    looks: &[ListedForecast],
    ends: bool,
) -> Vec<ForecastCase> {
    let case = |look: &ListedForecast| {
        let come = came.get(&look.job)?;
        let (interval, came_at) = if ends {
            (look.finish, come.finished_at)
        } else {
            (look.start, come.started_at)
        };
        (look.at < came_at).then_some(ForecastCase {
            job: look.job,
            document: come.document,
            at: look.at,
            has_started: look.has_started,
            interval,
            came_at,
        })
    };
    looks.iter().filter_map(case).collect()
}

fn planned(came: &BTreeMap<JobId, ActualTimes>, plan: &PlanAnswer) -> Option<ForecastCase> {
    let come = came.get(&plan.job)?;
    Some(ForecastCase {
        job: plan.job,
        document: come.document,
        at: plan.made_at,
        has_started: false,
        interval: plan.finish,
        came_at: come.finished_at,
    })
}

/// Sums over one job's polls.
#[derive(Default, Clone, Copy)]
struct PollSums {
    looks: f64,
    shown: f64,
    held: f64,
    early: f64,
    late: f64,
    unsure: f64,
}

fn row(title: &str, cases: &[ForecastCase], counts: impl Fn(&ForecastCase) -> bool) {
    let mut jobs: BTreeMap<JobId, PollSums> = BTreeMap::new();
    for case in cases.iter().filter(|case| counts(case)) {
        let sums = jobs.entry(case.job).or_default();
        sums.looks += 1.0;
        match (case.interval, case.shown()) {
            (_, Some(shown)) => {
                sums.shown += 1.0;
                sums.early += f64::from(u8::from(case.came_at < shown.p10));
                sums.late += f64::from(u8::from(case.came_at > shown.p90));
                let holds = (shown.p10..=shown.p90).contains(&case.came_at);
                sums.held += f64::from(u8::from(holds));
            }
            (Some(_), None) => sums.unsure += 1.0,
            (None, None) => {}
        }
    }
    // The share of each job, then the mean of the shares.
    let mean = |part: fn(&PollSums) -> f64, whole: fn(&PollSums) -> f64| {
        let shares: Vec<f64> = jobs
            .values()
            .filter(|sums| whole(sums) > 0.0)
            .map(|sums| part(sums) / whole(sums))
            .collect();
        100.0 * shares.iter().sum::<f64>() / shares.len() as f64
    };
    let shown = jobs.values().filter(|sums| sums.shown > 0.0).count();
    let looks: f64 = jobs.values().map(|sums| sums.shown).sum();
    println!(
        "{title:<34} {:>6.0} {:>6.0} {:>6.0} {:>6.0} {:>6.0} {shown:>6} {looks:>6}",
        mean(|sums| sums.held, |sums| sums.shown),
        mean(|sums| sums.early, |sums| sums.shown),
        mean(|sums| sums.late, |sums| sums.shown),
        mean(|sums| sums.unsure, |sums| sums.looks),
        mean(
            |sums| sums.looks - sums.shown - sums.unsure,
            |sums| sums.looks
        ),
    );
}

/// Median factor between a plan's median and the real time.
fn factor(cases: &[ForecastCase]) -> String {
    let mut off: Vec<f64> = cases
        .iter()
        .filter_map(|case| {
            let told_s = case.left_s(case.interval?.p50).max(0.1);
            Some((case.left_s(case.came_at).max(0.1) / told_s).ln().abs())
        })
        .collect();
    off.sort_by(f64::total_cmp);
    match off.get(off.len() / 2) {
        Some(middle) => format!("the middle is off by a factor of {:.2}", middle.exp()),
        None => "none told an end".to_owned(),
    }
}

/// One line for every poll of a job before its end.
pub fn csv(came: &BTreeMap<JobId, ActualTimes>, looks: &[ListedForecast]) -> String {
    let mut text = String::from("what,document,job,at_s,started,p10_s,p50_s,p90_s,came_s\n");
    let first = looks.first().map(|look| look.at);
    for (what, ends) in [("end", true), ("start", false)] {
        for case in cases(came, looks, ends) {
            let at_s = first.map_or(0.0, |first| (case.at - first).as_seconds_f64());
            let left = |at: OffsetDateTime| (at - case.at).as_seconds_f64();
            let interval = case.interval.map_or_else(
                || ",,".to_owned(),
                |found| {
                    format!(
                        "{:.1},{:.1},{:.1}",
                        left(found.p10),
                        left(found.p50),
                        left(found.p90)
                    )
                },
            );
            writeln!(
                text,
                "{what},{},{},{at_s:.1},{},{interval},{:.1}",
                case.document.name(),
                case.job,
                case.has_started,
                left(case.came_at)
            )
            .expect("a string takes all");
        }
    }
    text
}
