//! `muster metrics`: the metrics that a job's program has logged.

use super::{CliSession, NotFound};
use crate::output::{Out, table};
use clap::Args;
use futures::StreamExt as _;
use muster_model::view::{JobView, MetricSeriesView, MetricView};
use tokio::io::AsyncWriteExt as _;

#[derive(Debug, Args)]
pub struct MetricsArgs {
    /// Id of the job, or name (its newest job).
    job: String,
    /// Metrics of which to print points; without any, all metrics are listed.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Maximum number of points of each metric; neighbouring points are merged.
    #[arg(long, value_name = "NUMBER", default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=2_000))]
    points: u32,
    /// Print all points as CSV; without NAME those of all metrics.
    #[arg(long, conflicts_with = "points")]
    csv: bool,
}

/// Maximum number of names of a request.
const NAMES: usize = 10;

impl MetricsArgs {
    /// # Errors
    /// If the job or a metric does not exist, the server refuses, or the output cannot be written.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let job = session.job(&self.job).await?;
        if self.csv || !self.names.is_empty() {
            self.must_exist(session, &job).await?;
        }
        if self.csv {
            return self.export(session, &job).await;
        }
        if self.names.is_empty() {
            let metrics = session.client.metrics(job.id).await?;
            return session.output.print(&metrics, |metrics| listed(metrics));
        }
        let mut series = Vec::new();
        for names in self.names.chunks(NAMES) {
            let points = Some(self.points);
            series.extend(session.client.metric_points(job.id, names, points).await?);
        }
        session.output.print(&series, |series| shown(series))
    }

    /// Refuses a name that the job has not logged; its series would be left out silently.
    async fn must_exist(&self, session: &CliSession, job: &JobView) -> anyhow::Result<()> {
        let known = session.client.metrics(job.id).await?;
        for name in &self.names {
            if !known.iter().any(|metric| metric.name == *name) {
                let message = format!(
                    "job {} has no metric {name:?}; `muster metrics {}` lists its metrics",
                    job.name, self.job
                );
                return Err(NotFound(message).into());
            }
        }
        Ok(())
    }

    async fn export(&self, session: &CliSession, job: &JobView) -> anyhow::Result<()> {
        let mut file = session.client.export_metrics(job.id, &self.names).await?;
        let mut out = Out;
        while let Some(piece) = file.body.next().await {
            out.write_all(&piece?).await?;
        }
        Ok(out.flush().await?)
    }
}

fn listed(metrics: &[MetricView]) -> String {
    if metrics.is_empty() {
        return "no metrics yet".to_owned();
    }
    table(
        ["metric", "step", "last", "min", "max", "values"],
        metrics.iter().map(|metric| {
            [
                metric.name.clone(),
                metric.last_step.to_string(),
                number(metric.last),
                number(metric.min),
                number(metric.max),
                metric.values.to_string(),
            ]
        }),
    )
}

fn shown(series: &[MetricSeriesView]) -> String {
    let rows = series.iter().flat_map(|series| {
        series.points.iter().map(|point| {
            [
                series.name.clone(),
                point.step.to_string(),
                number(point.last),
                number(point.mean),
                number(point.min),
                number(point.max),
                point.values.to_string(),
            ]
        })
    });
    table(
        ["metric", "step", "last", "mean", "min", "max", "values"],
        rows,
    )
}

/// Returns a number with five significant digits. The scale of a metric is not known.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".to_owned()
    } else if (1e-4..1e6).contains(&size) {
        let before_point = if size < 1.0 { 0 } else { digits(size) };
        let text = format!("{value:.*}", 5_usize.saturating_sub(before_point));
        if text.contains('.') {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            text
        }
    } else {
        format!("{value:.4e}")
    }
}

fn digits(size: f64) -> usize {
    format!("{size:.0}").len()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_five_digits() {
        for (value, text) in [
            (0.0, "0"),
            (0.5, "0.5"),
            (-0.123_456_7, "-0.12346"),
            (12.345_67, "12.346"),
            (100.0, "100"),
            (123_456.7, "123457"),
            (0.000_03, "3.0000e-5"),
            (2.5e9, "2.5000e9"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
