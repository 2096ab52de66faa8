//! `muster forecast`: expected start and end of a job, and the accuracy of earlier forecasts.

use super::CliSession;
use crate::clock;
use crate::output::{duration_s, fields};
use clap::Args;
use muster_model::forecast::{Forecast, Interval, Unforeseen};
use muster_model::view::{AccuracyView, HitRate, JobView};
use serde::Serialize;
use time::OffsetDateTime;

#[derive(Debug, Args)]
pub struct ForecastArgs {
    /// Id of the job, or name (its newest job); without it, only the accuracy of forecasts.
    job: Option<String>,
    /// Count forecasts of this number of days.
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=365))]
    days: u32,
}

#[derive(Serialize)]
struct ForecastOutput {
    job: Option<JobView>,
    accuracy: AccuracyView,
}

impl ForecastArgs {
    /// # Errors
    /// If the job does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = match &self.job {
            Some(named) => Some(session.job(named).await?),
            None => None,
        };
        let accuracy = session.client.forecast_accuracy(self.days).await?;
        session
            .output
            .print(&ForecastOutput { job, accuracy }, describe)
    }
}

fn describe(output: &ForecastOutput) -> String {
    let mut rows = Vec::new();
    if let Some(job) = &output.job {
        rows.push(("job", job.name.clone()));
        rows.push(("phase", job.phase.as_str().to_owned()));
        match &job.forecast {
            None => rows.push(("forecast", "none yet, or it has ended".to_owned())),
            Some(expected) => rows.extend(lines(expected, clock::now())),
        }
    }
    rows.push(("80% of ends hold", rate(&output.accuracy.finish)));
    rows.push(("80% of starts hold", rate(&output.accuracy.start)));
    fields(&rows)
}

/// Returns lines with start, end and cost of a job, relative to `now`.
#[must_use]
pub fn lines(expected: &Forecast, now: OffsetDateTime) -> Vec<(&'static str, String)> {
    let mut rows = Vec::new();
    if let Some(start) = &expected.start {
        rows.push(("starts in", span(start, now)));
    }
    if let Some(why) = expected.unforeseen {
        rows.push(("ends in", unknown(why)));
        return rows;
    }
    let finish = expected.finish.as_ref();
    rows.push((
        "ends in",
        finish.map_or_else(|| NEVER.to_owned(), |finish| span(finish, now)),
    ));
    rows.push(("will take", gpu_hours(expected.gpu_s / 3_600.0)));
    rows
}

/// Returns an amount of GPU-hours as text. Jobs without GPUs need none.
#[must_use]
pub fn gpu_hours(hours: f64) -> String {
    if hours > 0.0 {
        format!("{hours:.2} GPU-hours")
    } else {
        "no GPU-hours".to_owned()
    }
}

/// Text for an event beyond the simulated future.
pub const NEVER: &str = "never, as things are";

/// Returns the text in place of an unknown interval.
#[must_use]
pub fn unknown(why: Unforeseen) -> String {
    format!("unknown: {why}")
}

/// Returns `12m (80%: 9m to 20m)`, or a text for an unsure interval.
#[must_use]
pub fn span(interval: &Interval, now: OffsetDateTime) -> String {
    let interval = interval.seen_at(now);
    if interval.unsure {
        return format!(
            "not known well enough yet: about {}",
            left(interval.p50, now)
        );
    }
    format!(
        "{} (80%: {} to {})",
        left(interval.p50, now),
        left(interval.p10, now),
        left(interval.p90, now)
    )
}

/// Returns the time until `at`.
fn left(at: OffsetDateTime, now: OffsetDateTime) -> String {
    duration_s((at - now).as_seconds_f64())
}

/// Returns the text of a table cell: `9m..20m`, `12m?` for an unsure interval, or `-`.
#[must_use]
pub fn column(interval: Option<&Interval>, now: OffsetDateTime) -> String {
    interval.map_or_else(
        || "-".to_owned(),
        |interval| {
            let interval = interval.seen_at(now);
            if interval.unsure {
                return format!("{}?", left(interval.p50, now));
            }
            let (least, most) = (left(interval.p10, now), left(interval.p90, now));
            if least == most {
                least
            } else {
                format!("{least}..{most}")
            }
        },
    )
}

fn rate(rate: &HitRate) -> String {
    match rate.share {
        None => "no job that was forecast has succeeded yet".to_owned(),
        Some(share) => format!(
            "{:.0}% of the time ({} forecasts of {} jobs)",
            share * 100.0,
            rate.forecasts,
            rate.jobs
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::{column, lines, span};
    use muster_model::forecast::{Forecast, Interval, Unforeseen};
    use time::macros::datetime;

    #[test]
    fn intervals_are_printed_in_short_form() {
        let now = datetime!(2026-01-01 0:00 UTC);
        let dates = (
            datetime!(2026-01-01 0:05 UTC),
            datetime!(2026-01-01 0:10 UTC),
            datetime!(2026-01-01 0:30 UTC),
        );
        let interval = Interval::of(dates, now);
        assert_eq!(span(&interval, now), "10m (80%: 5m to 30m)");
        assert_eq!(column(Some(&interval), now), "5m..30m");
        assert_eq!(column(None, now), "-");
    }

    #[test]
    fn unsure_interval_is_printed_as_one_time() {
        let now = datetime!(2026-01-01 0:00 UTC);
        let dates = (
            now,
            datetime!(2026-01-01 0:05 UTC),
            datetime!(2026-01-01 0:42 UTC),
        );
        let interval = Interval::of(dates, now);
        assert_eq!(span(&interval, now), "not known well enough yet: about 5m");
        assert_eq!(column(Some(&interval), now), "5m?");
    }

    #[test]
    fn unforeseen_end_is_printed_as_a_reason() {
        let now = datetime!(2026-01-01 0:00 UTC);
        let expected = Forecast {
            made_at: now,
            start: None,
            finish: None,
            gpu_s: 0.0,
            unforeseen: Some(Unforeseen::NoLength),
        };
        let text =
            "unknown: nothing says how long it is, and no job like it has succeeded yet".to_owned();
        assert_eq!(lines(&expected, now), [("ends in", text)]);
    }
}
