//! Validates messages of a node and converts them to the model's types.

use muster_model::assignment::{Observed, TaskReport};
use muster_model::fault::NodeFault;
use muster_model::id::{JobId, TaskId};
use muster_model::packing::UsageReport;
use muster_model::report::{MAX_REPORT_BYTES, UnfitReport};
use muster_proto::session as proto;
use muster_store::report::{NodeReport, TaskEvents};
use time::OffsetDateTime;

/// Message that no executor of this version sends.
#[derive(Debug, thiserror::Error)]
pub enum MessageDecodeError {
    #[error("{field} is {value:?}; expected a UUID")]
    Id { field: &'static str, value: String },
    #[error("{field} is not the JSON that was expected: {value}")]
    Json {
        field: &'static str,
        value: String,
        #[source]
        source: serde_json::Error,
    },
    #[error("{field} is {value}; expected milliseconds of a date")]
    Time { field: &'static str, value: i64 },
}

/// Decodes a report.
///
/// # Errors
/// [`MessageDecodeError`] for the first invalid part; the whole report is then unused.
pub fn report(report: proto::Report) -> Result<NodeReport, MessageDecodeError> {
    let mut decoded = NodeReport::default();
    for status in report.statuses {
        let text = &status.observed_json;
        let observed = Observed::read(text)
            .map_err(|source| unreadable("statuses.observed_json", text, source))?;
        decoded.statuses.push((
            task_id("statuses.task_id", &status.task_id)?,
            status.revision,
            observed,
        ));
    }
    for run in report.events {
        let mut events = Vec::with_capacity(run.events.len());
        for event in run.events {
            let report = task_report(&event.report_json)?;
            events.push((time("events.at_unix_ms", event.at_unix_ms)?, report));
        }
        decoded.events.push(TaskEvents {
            task_id: task_id("events.task_id", &run.task_id)?,
            revision: run.revision,
            first_seq: run.first_seq,
            events,
        });
    }
    for chunk in report.logs {
        decoded.logs.push((
            task_id("logs.task_id", &chunk.task_id)?,
            chunk.offset,
            chunk.data,
        ));
    }
    Ok(decoded)
}

/// Readable faults. Unknown ones are dropped, because a newer node would repeat a refused message
/// for ever.
pub fn faults(faults: &[proto::NodeFault]) -> Vec<(OffsetDateTime, NodeFault)> {
    faults
        .iter()
        .filter_map(|fault| match read_fault(fault) {
            Ok(known) => Some(known),
            Err(error) => {
                tracing::warn!(%error, "a node tells of a fault that is not known here");
                None
            }
        })
        .collect()
}

fn read_fault(fault: &proto::NodeFault) -> Result<(OffsetDateTime, NodeFault), MessageDecodeError> {
    let at = time("faults.at_unix_ms", fault.at_unix_ms)?;
    Ok((at, json("faults.fault_json", &fault.fault_json)?))
}

/// Readable usages; unknown ones are dropped as with faults.
pub fn usages(usages: &[proto::TaskUsage]) -> Vec<(TaskId, UsageReport)> {
    usages
        .iter()
        .filter_map(|told| match read_usage(told) {
            Ok(known) => Some(known),
            Err(error) => {
                tracing::warn!(%error, "a task's usage report is of an unknown form");
                None
            }
        })
        .collect()
}

fn read_usage(told: &proto::TaskUsage) -> Result<(TaskId, UsageReport), MessageDecodeError> {
    let id = task_id("usages.task_id", &told.task_id)?;
    Ok((id, json("usages.usage_json", &told.usage_json)?))
}

/// Decodes a report of a task. A report that is too long, or has a number or a metric that cannot
/// be stored, becomes a note. If it were refused, its node would repeat it and all later reports
/// for ever.
fn task_report(text: &str) -> Result<TaskReport, MessageDecodeError> {
    if text.len() > MAX_REPORT_BYTES {
        let message = format!(
            "a report of {} bytes is left out; expected {MAX_REPORT_BYTES} at most",
            text.len()
        );
        return Ok(TaskReport::Note { message });
    }
    match TaskReport::read(text) {
        Ok(report) => Ok(report),
        Err(error @ (UnfitReport::Number { .. } | UnfitReport::Metrics(_))) => {
            Ok(TaskReport::Note {
                message: format!("a report cannot be kept: {error}"),
            })
        }
        Err(UnfitReport::Json(source)) => Err(unreadable("events.report_json", text, source)),
    }
}

/// Parses JSON.
///
/// # Errors
/// [`MessageDecodeError::Json`] with `field`.
pub fn json<T: serde::de::DeserializeOwned>(
    field: &'static str,
    text: &str,
) -> Result<T, MessageDecodeError> {
    serde_json::from_str(text).map_err(|source| unreadable(field, text, source))
}

fn unreadable(field: &'static str, text: &str, source: serde_json::Error) -> MessageDecodeError {
    MessageDecodeError::Json {
        field,
        value: text.chars().take(200).collect(),
        source,
    }
}

/// Parses the id of a job.
///
/// # Errors
/// [`MessageDecodeError::Id`].
pub fn job_id(field: &'static str, text: &str) -> Result<JobId, MessageDecodeError> {
    text.parse().map_err(|_| MessageDecodeError::Id {
        field,
        value: text.chars().take(64).collect(),
    })
}

pub(super) fn task_id(field: &'static str, text: &str) -> Result<TaskId, MessageDecodeError> {
    text.parse().map_err(|_| MessageDecodeError::Id {
        field,
        value: text.chars().take(64).collect(),
    })
}

fn time(field: &'static str, unix_ms: i64) -> Result<OffsetDateTime, MessageDecodeError> {
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000).map_err(|_| {
        MessageDecodeError::Time {
            field,
            value: unix_ms,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfit_metric_becomes_a_note() {
        let line = |name: &str| {
            format!(r#"{{"kind":"metrics","points":[{{"name":"{name}","step":1,"value":0.5}}]}}"#)
        };
        let read = task_report(&line("val/f1")).expect("a report");
        assert!(matches!(read, TaskReport::Metrics { .. }), "{read:?}");
        let note = task_report(&line("acc@1")).expect("a note");
        let TaskReport::Note { message } = note else {
            panic!("{note:?}");
        };
        assert!(message.contains("acc@1"), "{message}");
    }
}
