//! `muster diff`: documents and results of jobs side by side.

use super::job_table::{phase_and_reason, short_id};
use super::{CliSession, UsageError};
use crate::output::{duration_s, table_of};
use crate::terminal::cut;
use clap::Args;
use muster_model::view::{JobView, MetricView};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;

/// Maximum number of compared jobs.
const MAX_JOBS: usize = 8;
/// Maximum length of a value in the table.
const SHOWN: usize = 40;

/// Reads a result of a job.
type ValueOf = fn(&JobView) -> Option<Value>;

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// Ids or names of two to eight jobs; a name means its newest job.
    #[arg(required = true, num_args = 2.., value_name = "JOB")]
    jobs: Vec<String>,
    /// Print equal fields, too.
    #[arg(long)]
    all: bool,
}

/// A compared field or result; `null` for a job without it.
#[derive(Debug, Clone, PartialEq, Serialize)]
struct ComparedRow {
    name: String,
    values: Vec<Value>,
}

#[derive(Debug, Serialize)]
struct Comparison {
    /// Ids of the jobs, in the order of the values.
    jobs: Vec<String>,
    /// Fields of the documents.
    fields: Vec<ComparedRow>,
    results: Vec<ComparedRow>,
    /// The newest value of each metric.
    metrics: Vec<ComparedRow>,
}

impl DiffArgs {
    /// # Errors
    /// If a job does not exist, or the server refuses.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        if self.jobs.len() > MAX_JOBS {
            let given = self.jobs.len();
            let problem = format!("{given} jobs are given; at most {MAX_JOBS} can be compared");
            return Err(UsageError(problem).into());
        }
        let (mut jobs, mut metrics) = (Vec::new(), Vec::new());
        for named in &self.jobs {
            let job = session.job(named).await?;
            metrics.push(session.client.metrics(job.id).await?);
            jobs.push(job);
        }
        let comparison = Comparison {
            jobs: jobs.iter().map(|job| job.id.to_string()).collect(),
            fields: self.kept(fields(&jobs)?),
            results: results(&jobs),
            metrics: newest(&metrics),
        };
        session
            .output
            .print(&comparison, |comparison| shown(comparison, &jobs))
    }

    /// Leaves out rows with equal values, unless all are wanted.
    fn kept(&self, mut rows: Vec<ComparedRow>) -> Vec<ComparedRow> {
        rows.retain(|row| self.all || row.differs());
        rows
    }
}

impl ComparedRow {
    fn differs(&self) -> bool {
        self.values.iter().any(|value| *value != self.values[0])
    }

    fn of(jobs: &[JobView], name: &str, value: ValueOf) -> Self {
        let values = jobs.iter().map(|job| value(job).unwrap_or_default());
        Self {
            name: name.to_owned(),
            values: values.collect(),
        }
    }
}

/// Returns all fields of the documents by their paths.
fn fields(jobs: &[JobView]) -> anyhow::Result<Vec<ComparedRow>> {
    let mut rows = BTreeMap::new();
    for (place, job) in jobs.iter().enumerate() {
        let document = serde_json::to_value(&job.spec)?;
        collect("", document, &mut |path, value| {
            let values = rows
                .entry(path)
                .or_insert_with(|| vec![Value::Null; jobs.len()]);
            values[place] = value;
        });
    }
    Ok(rows_of(rows))
}

/// Visits each value of a document with its path. Lists of plain values are one value.
fn collect(path: &str, value: Value, visit: &mut impl FnMut(String, Value)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let dot = if path.is_empty() { "" } else { "." };
                collect(&format!("{path}{dot}{name}"), value, visit);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object() || item.is_array()) => {
            for (at, value) in items.into_iter().enumerate() {
                collect(&format!("{path}[{at}]"), value, visit);
            }
        }
        Value::Null => {}
        value => visit(path.to_owned(), value),
    }
}

fn rows_of(rows: BTreeMap<String, Vec<Value>>) -> Vec<ComparedRow> {
    let rows = rows.into_iter();
    rows.map(|(name, values)| ComparedRow { name, values })
        .collect()
}

/// Returns the results that at least one job has.
fn results(jobs: &[JobView]) -> Vec<ComparedRow> {
    let values: [(&str, ValueOf); 9] = [
        ("phase", |job| Some(phase_and_reason(job).into())),
        ("failure", |job| job.failure.clone().map(Value::from)),
        ("workers", |job| {
            let is_open = !job.phase.is_terminal();
            is_open.then(|| job.workers.running.into())
        }),
        ("run time", |job| Some(duration_s(run_time_s(job)?).into())),
        ("step", |job| Some(job.progress.as_ref()?.step.into())),
        ("steps/s", |job| {
            Some(rounded(job.progress.as_ref()?.steps_per_s?))
        }),
        ("train loss", |job| {
            Some(rounded(job.progress.as_ref()?.loss?))
        }),
        ("test loss", |job| {
            Some(rounded(job.progress.as_ref()?.test_loss?))
        }),
        ("test accuracy", |job| {
            Some(rounded(job.progress.as_ref()?.test_accuracy?))
        }),
    ];
    let rows = values.map(|(name, value)| ComparedRow::of(jobs, name, value));
    let mut rows = Vec::from(rows);
    rows.retain(|row| row.values.iter().any(|value| !value.is_null()));
    rows
}

/// Seconds from the first start to the end; `None` for a job that has not ended.
fn run_time_s(job: &JobView) -> Option<f64> {
    Some((job.finished_at? - job.started_at?).as_seconds_f64())
}

/// Returns the number with six significant digits.
fn rounded(number: f64) -> Value {
    let text = format!("{number:.5e}");
    text.parse::<f64>().map_or(Value::Null, Value::from)
}

fn newest(metrics: &[Vec<MetricView>]) -> Vec<ComparedRow> {
    let mut rows = BTreeMap::new();
    for (place, metrics) in metrics.iter().enumerate() {
        for metric in metrics.iter() {
            let name = metric.name.clone();
            let values = rows.entry(name).or_insert_with(Vec::new);
            values.resize(place, Value::Null);
            values.push(rounded(metric.last));
        }
    }
    for values in rows.values_mut() {
        values.resize(metrics.len(), Value::Null);
    }
    rows_of(rows)
}

fn shown(comparison: &Comparison, jobs: &[JobView]) -> String {
    let heads = jobs.iter().map(|job| {
        let name = cut(&job.name, SHOWN - 9);
        format!("{name} {}", short_id(job))
    });
    let heads: Vec<String> = heads.collect();
    let parts = [
        ("field", &comparison.fields),
        ("result", &comparison.results),
        ("metric", &comparison.metrics),
    ];
    let tables = parts.into_iter().filter(|(_, rows)| !rows.is_empty());
    let tables = tables.map(|(what, rows)| {
        let header: Vec<&str> = [what]
            .into_iter()
            .chain(heads.iter().map(String::as_str))
            .collect();
        let rows = rows
            .iter()
            .map(|row| [row.name.clone()].into_iter().chain(cells(row)).collect());
        table_of(&header, rows)
    });
    let mut tables: Vec<String> = tables.collect();
    if comparison.fields.is_empty() {
        tables.insert(0, "the documents are equal".to_owned());
    }
    tables.join("\n\n")
}

/// Returns the values of a row, each cut to a part in which they differ.
fn cells(row: &ComparedRow) -> Vec<String> {
    let texts: Vec<String> = row.values.iter().map(text_of).collect();
    let is_cut = texts.iter().any(|text| text.chars().count() > SHOWN);
    let first = texts.first().map_or("", String::as_str);
    let common = texts.iter().map(|text| common_prefix(text, first)).min();
    let common = common.unwrap_or(0);
    let skipped = if is_cut {
        common.saturating_sub(SHOWN / 2)
    } else {
        0
    };
    let shown = texts.iter().map(|text| match skipped {
        0 => cut(text, SHOWN),
        skipped => {
            let rest: String = text.chars().skip(skipped).collect();
            cut(&format!("…{rest}"), SHOWN)
        }
    });
    shown.collect()
}

/// Number of characters with which both texts begin.
fn common_prefix(one: &str, other: &str) -> usize {
    let pairs = one.chars().zip(other.chars());
    pairs.take_while(|(one, other)| one == other).count()
}

fn text_of(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.replace('\n', " "),
        Value::Array(items) => {
            let items = items.iter().map(|item| match item {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            });
            items.collect::<Vec<_>>().join(" ")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn documents_are_compared_by_path() {
        let mut found = Vec::new();
        let document = json!({ "name": "a", "from": null,
            "command": { "argv": ["python", "x.py"], "secrets": [{ "name": "T" }] } });
        collect("", document, &mut |path, value| found.push((path, value)));
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            ("command.argv", json!(["python", "x.py"])),
            ("command.secrets[0].name", json!("T")),
            ("name", json!("a")),
        ];
        let expected = expected.map(|(path, value)| (path.to_owned(), value));
        assert_eq!(found, expected);
    }

    #[test]
    fn long_values_are_cut_where_they_differ() {
        let long = |end: &str| json!(format!("python3 {} {end}", "x".repeat(80)));
        let row = ComparedRow {
            name: "command.argv".to_owned(),
            values: vec![long("--lr 0.1"), long("--lr 0.2")],
        };
        let cells = cells(&row);
        assert!(cells[0].ends_with("--lr 0.1"), "{cells:?}");
        assert!(cells[1].ends_with("--lr 0.2"), "{cells:?}");
        assert!(cells.iter().all(|cell| cell.chars().count() <= SHOWN));
    }

    #[test]
    fn jobs_without_a_metric_have_no_value() {
        let metric = |name: &str, last: f64| MetricView {
            name: name.to_owned(),
            last_step: 1,
            last,
            min: last,
            max: last,
            values: 1,
        };
        let metrics = [
            vec![],
            vec![metric("f1", 0.123_456_78)],
            vec![metric("lr", 2.0)],
        ];
        let rows = newest(&metrics);
        assert_eq!(rows[0].values, [Value::Null, json!(0.123_457), Value::Null]);
        assert_eq!(rows[1].values, [Value::Null, Value::Null, json!(2.0)]);
    }
}
