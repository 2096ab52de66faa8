//! Ends jobs whose program has reached the target of its document. The built-in engine ends by
//! itself.

use super::facts::finish;
use super::{ReportEffects, ReportedTask};
use crate::error::StoreError;
use crate::event::{NewEvent, of_job};
use crate::plan::JobFinishReport;
use muster_model::assignment::TaskReport;
use muster_model::event::Event;
use muster_model::metric::Goal;
use muster_model::spec::{Metric, Target};
use muster_model::task::Role;
use sqlx::PgConnection;
use time::OffsetDateTime;

/// A value that reaches the target.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ReachingValue {
    step: u64,
    value: f64,
}

/// Records that the job is done if a new line of its rank 0 has a value that reaches the target.
/// The next round stops its tasks. Only the first such value counts.
pub(super) async fn check(
    conn: &mut PgConnection,
    known: &ReportedTask,
    new: &[(OffsetDateTime, TaskReport)],
    sum: &mut ReportEffects,
) -> Result<(), StoreError> {
    let task = &known.locked.task;
    let Some(target) = known
        .target
        .as_ref()
        .filter(|_| task.role == (Role::Worker { rank: 0 }))
    else {
        return Ok(());
    };
    let mut reports = new.iter();
    let Some(ReachingValue { step, value }) =
        reports.find_map(|(_, report)| reaching(target, report))
    else {
        return Ok(());
    };
    let reason = target.reason(value);
    let finished = JobFinishReport {
        step,
        reason: reason.clone(),
        model_path: String::new(),
    };
    if !finish(conn, task.job_id, &finished).await? {
        return Ok(());
    }
    sum.outcome.round_due = true;
    let event = Event::TrainingFinished {
        step,
        reason,
        model_path: String::new(),
    };
    let event = NewEvent {
        node_id: Some(task.node_id),
        ..of_job(sum.now, known.locked.tenant_id, task.job_id, event)
    };
    let volume = sum
        .volumes
        .of(conn, known.locked.tenant_id, task.job_id)
        .await?;
    sum.events.extend(volume.keep(event));
    Ok(())
}

/// Returns the first value of a report that reaches the target. Of merged values, the smallest and
/// the largest are known exactly.
fn reaching(target: &Target, report: &TaskReport) -> Option<ReachingValue> {
    match (&target.metric, report) {
        (Metric::Logged(name), TaskReport::Metrics { points }) => {
            let of_name = points.iter().filter(|point| point.name == *name);
            let mut extremes = of_name.map(|point| {
                let value = match target.goal {
                    Some(Goal::Minimize) => point.summary().min,
                    _ => point.summary().max,
                };
                let step = point.step;
                ReachingValue { step, value }
            });
            extremes.find(|one| target.is_met(one.value))
        }
        (metric, TaskReport::Evaluated { evaluation }) => {
            let value = metric.of_evaluation(evaluation.loss, evaluation.accuracy)?;
            let step = evaluation.step;
            target
                .is_met(value)
                .then_some(ReachingValue { step, value })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::metric::{MergedValues, MetricPoint};
    use muster_model::progress::{Evaluation, Split};

    fn target(metric: &str, value: f64, goal: Option<Goal>) -> Target {
        Target {
            metric: metric.to_owned().into(),
            value,
            goal,
        }
    }

    fn logged(name: &str, [min, last, max]: [f64; 3]) -> TaskReport {
        let merged = Some(MergedValues {
            count: 3,
            mean: last,
            min,
            max,
        });
        let (name, step, value) = (name.to_owned(), 7, last);
        let point = MetricPoint {
            name,
            step,
            value,
            merged,
        };
        TaskReport::Metrics {
            points: vec![point],
        }
    }

    #[test]
    fn extreme_of_merged_values_reaches_the_target() {
        let report = logged("f1", [0.1, 0.5, 0.9]);
        let value = |target| reaching(&target, &report).map(|one| one.value);
        assert_eq!(value(target("f1", 0.9, Some(Goal::Maximize))), Some(0.9));
        assert_eq!(value(target("f1", 0.91, Some(Goal::Maximize))), None);
        assert_eq!(value(target("f1", 0.1, Some(Goal::Minimize))), Some(0.1));
        assert_eq!(value(target("f1", 0.09, Some(Goal::Minimize))), None);
        assert_eq!(value(target("f2", 0.0, Some(Goal::Maximize))), None);
    }

    #[test]
    fn evaluation_reaches_a_target_of_its_own_metrics() {
        let evaluation = Evaluation {
            step: 7,
            epoch: 1.0,
            split: Split::Validation,
            loss: None,
            accuracy: Some(0.8),
        };
        let report = TaskReport::Evaluated { evaluation };
        let value = |target| reaching(&target, &report).map(|one| one.value);
        assert_eq!(value(target("test_accuracy", 0.8, None)), Some(0.8));
        assert_eq!(value(target("test_accuracy", 0.81, None)), None);
        assert_eq!(value(target("test_loss", 0.8, None)), None);
        assert_eq!(value(target("f1", 0.1, Some(Goal::Maximize))), None);
    }
}
