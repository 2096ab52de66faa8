//! Common job trace: the format of converted files of Philly, Alibaba and Gavel, and of a live
//! cluster's history.

use super::table::{Schema, TraceRow, TraceTable};
use super::{TraceError, TraceJob, TraceWork};

/// Columns of a common job trace.
///
/// `submit_s` counts from the first job. `gpus` is the requested number, a part of a GPU as a
/// decimal. `duration_s` is the time on those GPUs, empty if unknown. `status` is the source's
/// term. Alibaba adds the request of the pod. Gavel adds its job type, and `total_steps` instead of
/// a duration. Muster's exports add the kind of the job, its start, its end, and in `gpu_spec` the
/// allowed GPU kinds.
pub const SCHEMA: Schema = Schema {
    name: "a common job trace",
    required: &["job_id", "vc", "submit_s", "gpus", "duration_s", "status"],
    optional: &[
        "num_gpu",
        "gpu_milli",
        "cpu_milli",
        "memory_mib",
        "gpu_spec",
        "lifetime_s",
        "job_type",
        "total_steps",
        "kind",
        "started_s",
        "finished_s",
    ],
};

/// Numeric columns that are checked and not stored.
const NUMBERS: [&str; 5] = [
    "cpu_milli",
    "memory_mib",
    "lifetime_s",
    "started_s",
    "finished_s",
];

/// Job of a cluster's history. Times are seconds since the first submission.
#[derive(Debug, Clone, PartialEq)]
pub struct HistoryJob {
    pub id: String,
    pub tenant: String,
    pub submitted_s: f64,
    /// GPUs of the first start; the request if the job never started.
    pub gpus: u32,
    pub status: String,
    /// Application, model or job type.
    pub kind: String,
    pub started_s: Option<f64>,
    pub finished_s: Option<f64>,
    /// Patterns of the allowed GPU models; empty for any.
    pub gpu_kinds: Vec<String>,
}

/// Writes a history as a common job trace, in the given order. A job without a start or an end has
/// no duration. Otherwise the duration is from the first start to the end, independent of the GPUs
/// held in between.
#[must_use]
pub fn write(history: &[HistoryJob]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let ours = ["kind", "started_s", "finished_s", "gpu_spec"];
    write_record(&mut writer, &[SCHEMA.required, &ours].concat());
    for past in history {
        let duration_s = past
            .started_s
            .zip(past.finished_s)
            .map(|(from, to)| to - from);
        let fields: [&str; 10] = [
            &past.id,
            &past.tenant,
            &seconds(Some(past.submitted_s)),
            &past.gpus.to_string(),
            &seconds(duration_s),
            &past.status,
            &past.kind,
            &seconds(past.started_s),
            &seconds(past.finished_s),
            &past.gpu_kinds.join("|"),
        ];
        write_record(&mut writer, &fields);
    }
    let bytes = writer.into_inner().unwrap_or_default();
    String::from_utf8(bytes).unwrap_or_default()
}

fn write_record(writer: &mut csv::Writer<Vec<u8>>, fields: &[&str]) {
    let Ok(()) = writer.write_record(fields) else {
        unreachable!("a Vec takes whatever is written, and all rows have one length");
    };
}

/// Field of a time, to the millisecond; empty without a time.
fn seconds(s: Option<f64>) -> String {
    s.map(|s| format!("{}", (s * 1e3).round() / 1e3))
        .unwrap_or_default()
}

pub(super) fn jobs(table: &TraceTable) -> Result<Vec<TraceJob>, TraceError> {
    table.unique("job_id")?;
    table.rows().map(|row| job(&row)).collect()
}

fn job(row: &TraceRow<'_>) -> Result<TraceJob, TraceError> {
    for column in NUMBERS {
        if row.get(column).is_some() {
            row.decimal(column)?;
        }
    }
    let gpu_share = row.decimal("gpus")?;
    if gpu_share > 1_000_000.0 || gpu_share > 1.0 && gpu_share.fract() != 0.0 {
        let expected = "expected whole GPUs, or a part of one, at most 1000000";
        return Err(row.wrong("gpus", expected));
    }
    shares_agree(row, gpu_share)?;
    Ok(TraceJob {
        name: row.text("job_id")?.to_owned(),
        tenant: row.text("vc")?.to_owned(),
        submitted_s: row.decimal("submit_s")?,
        // At most a million, as checked above.
        gpus: gpu_share.ceil() as u32,
        gpu_share,
        kind: kind(row)?.to_owned(),
        work: work(row)?,
        status: Some(row.text("status")?.to_owned()),
        gpu_spec: row
            .get("gpu_spec")
            .map(|spec| spec.split('|').map(str::to_owned).collect())
            .unwrap_or_default(),
    })
}

/// Checks that `gpus` equals `num_gpu * gpu_milli / 1000` in Alibaba's rows.
fn shares_agree(row: &TraceRow<'_>, gpu_share: f64) -> Result<(), TraceError> {
    if row.get("num_gpu").is_none() && row.get("gpu_milli").is_none() {
        return Ok(());
    }
    let gpus = row.whole("num_gpu", 0..=1_000_000)?;
    let milli = row.whole("gpu_milli", 0..=1000)?;
    let product = f64::from(gpus) * f64::from(milli) / 1000.0;
    if (product - gpu_share).abs() > 1e-9 {
        let expected = format!("num_gpu * gpu_milli / 1000 is {product}");
        return Err(row.wrong("gpus", expected));
    }
    Ok(())
}

fn kind<'t>(row: &TraceRow<'t>) -> Result<&'t str, TraceError> {
    match (row.get("job_type"), row.get("kind")) {
        (Some(_), Some(_)) => Err(row.wrong("kind", "expected none beside a job_type")),
        (job_type, kind) => Ok(job_type.or(kind).unwrap_or_default()),
    }
}

fn work(row: &TraceRow<'_>) -> Result<TraceWork, TraceError> {
    match (row.get("duration_s"), row.get("total_steps")) {
        (Some(_), Some(_)) => Err(row.wrong("total_steps", "expected none beside a duration_s")),
        (Some(_), None) => Ok(TraceWork::Seconds {
            seconds: row.decimal("duration_s")?,
        }),
        (None, Some(_)) => Ok(TraceWork::Steps {
            steps: row.whole("total_steps", 0..=u32::MAX)?.into(),
        }),
        (None, None) => Ok(TraceWork::Unknown),
    }
}
