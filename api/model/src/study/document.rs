//! The study document: a search, and the job document into which the values of a trial are written.

use super::{BudgetUnit, Domain, Errors, JobMetric, Point, SearchSpec, Space, Stopper};
use crate::metric::{NAME_RULE, is_name};
use crate::spec::{
    Code, FieldError, JobSpec, NO_ID, Pod, Preemption, SecretRef, Version, is_dns_label, is_id,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// A study: a search over the parameters of a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct StudySpec {
    pub version: Version,
    pub kind: StudyKind,
    /// 1 to 55 characters of `a-z`, `0-9` and `-`. Trials are named `name-0`, `name-1` and so on.
    pub name: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    pub search: SearchSpec,
    /// A job document without `version`, `name` and `labels`, which are those of the study. Fields
    /// of parameters may be left out. Without `job`, a program outside trains the trials and
    /// reports the results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schema(value_type = Option<Object>))]
    pub job: Option<Value>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub enum StudyKind {
    Study,
}

/// Maximum number of jobs that are built to check a document, and maximum bytes of them together.
/// At least two are built per parameter.
const PROBES: usize = 4096;
const PROBED_BYTES: usize = 64 << 20;

/// Fields of the study that its job must not contain.
const OWN: [&str; 3] = ["version", "name", "labels"];

impl StudySpec {
    /// Checks the search and that every parameter has its field in the job document. Checks the job
    /// with the ends of every range and with every choice; of very many choices in a large document
    /// only some are checked, to bound the work.
    ///
    /// # Errors
    /// One [`FieldError`] per broken rule.
    pub fn validate(&self) -> Result<Space, Vec<FieldError>> {
        let mut errors = Errors::default();
        errors.check(
            "name",
            &format!("{:?}", self.name),
            is_dns_label(&self.name) && self.name.len() <= 55,
            "1 to 55 characters of a-z, 0-9 and '-', beginning and ending with a letter or digit",
        );
        errors.check(
            "name",
            &format!("{:?}", self.name),
            !is_id(&self.name),
            NO_ID,
        );
        if let Some(job) = &self.job {
            self.check_job(job, &mut errors);
        }
        let space = self.search.space();
        let mut errors = errors.0;
        match space {
            Ok(space) if errors.is_empty() => {
                if self.job.is_some() {
                    errors.extend(self.check_fields(&space));
                }
                if errors.is_empty() {
                    Ok(space)
                } else {
                    Err(errors)
                }
            }
            Ok(_) => Err(errors),
            Err(found) => {
                errors.extend(within_search(found));
                Err(errors)
            }
        }
    }

    /// Checks what the study needs in its job, and that the job does not contain the study's own
    /// fields.
    fn check_job(&self, job: &Value, errors: &mut Errors) {
        for field in OWN {
            errors.check(
                &format!("job.{field}"),
                "given",
                job.get(field).is_none(),
                "left out: the study says it for all its trials",
            );
        }
        let budget = &self.search.budget;
        let stop = stop_field(budget.unit);
        errors.check(
            &format!("job.{stop}"),
            "given",
            job.pointer(&format!("/{}", stop.replace('.', "/")))
                .is_none(),
            "left out: search.budget says how far trials train",
        );
        let is_command = job.get("command").is_some();
        self.check_objectives(is_command, errors);
        self.check_budget_field(is_command, errors);
        errors.check(
            "job.from",
            "given",
            job.get("from").is_none(),
            "left out: trials of a study begin fresh, or with pbt from each other",
        );
        errors.check(
            "job.interactive",
            "given",
            job.get("interactive").is_none(),
            "left out: no user works in a trial",
        );
        errors.check(
            "job.after",
            "given",
            job.get("after").is_none(),
            "left out: trials start when the study starts them",
        );
        errors.check(
            "job.array",
            "given",
            job.get("array").is_none(),
            "left out: search.concurrency limits the trials that run at the same time",
        );
        if matches!(self.search.stopper, Stopper::Pbt { .. }) {
            self.check_copies(is_command, errors);
        }
    }

    /// Checks that the job can report the objectives: a program any metric, the built-in engine
    /// only its curve.
    fn check_objectives(&self, is_command: bool, errors: &mut Errors) {
        let known: Vec<&str> = JobMetric::ALL.into_iter().map(JobMetric::as_str).collect();
        let known = known.join(", ");
        let expected = if is_command {
            format!("one of {known}, or a metric that the program logs: {NAME_RULE}")
        } else {
            format!(
                "one of {known}: the built-in engine logs its curve only, and other metrics need a job with command"
            )
        };
        for (i, objective) in self.search.objectives.iter().enumerate() {
            let name = &objective.metric;
            errors.check(
                &format!("search.objectives[{i}].metric"),
                &format!("{name:?}"),
                JobMetric::named(name).is_some() || is_command && is_name(name),
                &expected,
            );
        }
    }

    /// In population-based training, trials continue from the state of other trials, so the state
    /// must fit all of them.
    fn check_copies(&self, is_command: bool, errors: &mut Errors) {
        for (i, parameter) in self.search.parameters.iter().enumerate() {
            let field = parameter.field.as_deref().unwrap_or(&parameter.name);
            // Within an epoch of another length there is no same place in the data.
            errors.check(
                &format!("search.parameters[{i}].field"),
                &format!("{field:?}, with a budget in steps"),
                field != "engine.batch" || self.search.budget.unit == BudgetUnit::Epochs,
                "with pbt a batch that differs only where the budget's unit is epochs, so that generations end with an epoch",
            );
            errors.check(
                &format!("search.parameters[{i}].field"),
                &format!("{field:?}"),
                is_command || !field.starts_with("engine.") || may_differ(field),
                "with pbt one that a trial may change whose state is copied: in engine.optimizer (but not its kind), engine.schedule, engine.batch, engine.clip_norm, engine.accumulate, engine.seed or engine.model.dropout",
            );
        }
    }

    /// Checks the field of a command's budget: no parameter may write it.
    fn check_budget_field(&self, is_command: bool, errors: &mut Errors) {
        let in_parts = !matches!(
            self.search.stopper,
            Stopper::None {} | Stopper::Median { .. }
        );
        let Some(field) = &self.search.budget.field else {
            errors.check(
                "search.budget.field",
                "missing",
                !is_command || !in_parts,
                "the field that tells the command how far to train, such as command.env.EPOCHS: this stopper trains trials in parts",
            );
            return;
        };
        if !is_command {
            let expected = "left out: the built-in engine reads it from its stop part";
            errors.check("search.budget.field", field, false, expected);
            return;
        }
        let text = ["command.env.", "command.argv["];
        errors.check(
            "search.budget.field",
            field,
            field == "command.steps" || text.iter().any(|start| field.starts_with(start)),
            "a variable, an argument or the steps of the command: command.env.NAME, command.argv[1] or command.steps",
        );
    }

    /// Returns the job of one trial.
    ///
    /// # Errors
    /// The field of the job document that does not accept its value.
    ///
    /// # Panics
    /// If the study has no job, because its trials are trained outside.
    pub fn trial(
        &self,
        space: &Space,
        number: u32,
        point: &[Option<f64>],
        seed: u64,
        budget: u64,
    ) -> Result<JobSpec, FieldError> {
        let mut document = self.job.clone().expect("the study's trials are jobs");
        set(&mut document, "version", Value::from("muster/v1"))?;
        set(
            &mut document,
            "name",
            Value::from(format!("{}-{number}", self.name)),
        )?;
        set(&mut document, "labels", serde_json::json!(self.labels))?;
        if let Some(field) = &self.search.budget.field {
            set(&mut document, field, Value::from(budget))?;
        } else if document.get("command").is_none() {
            let stop = stop_field(self.search.budget.unit);
            set(&mut document, stop, Value::from(budget))?;
        }
        // A trial has a seed of its own unless the job or a parameter sets it.
        if document
            .pointer("/engine")
            .is_some_and(|e| e.get("seed").is_none())
        {
            set(&mut document, "engine.seed", Value::from(seed))?;
        }
        for (dimension, value) in space.dimensions.iter().zip(point) {
            if let Some(value) = value {
                set(
                    &mut document,
                    &dimension.target,
                    dimension.domain.value(*value),
                )?;
            }
        }
        // By reference: the document is formatted only in the error case.
        JobSpec::deserialize(&document).map_err(|error| FieldError {
            field: "job".to_owned(),
            value: document.to_string(),
            expected: format!("a job document: {error}"),
        })
    }

    /// Returns the pod settings of all trials; no parameter changes them.
    #[must_use]
    pub fn pod(&self) -> Pod {
        let said = self.job.as_ref().and_then(|job| job.get("pod"));
        said.and_then(|pod| Pod::deserialize(pod).ok())
            .unwrap_or_default()
    }

    /// Returns the code of all trials.
    #[must_use]
    pub fn code(&self) -> Option<Code> {
        let code = self.job.as_ref()?.get("command")?.get("code")?;
        Code::deserialize(code).ok()
    }

    /// Returns the secrets of all trials.
    #[must_use]
    pub fn secrets(&self) -> Vec<SecretRef> {
        let command = self.job.as_ref().and_then(|job| job.get("command"));
        let secrets = command.and_then(|command| command.get("secrets"));
        secrets
            .and_then(|secrets| Vec::deserialize(secrets).ok())
            .unwrap_or_default()
    }

    /// Returns the `preemption` part of all trials.
    #[must_use]
    pub fn preemption(&self) -> Preemption {
        let said = self.job.as_ref().and_then(|job| job.get("preemption"));
        said.and_then(|said| Preemption::deserialize(said).ok())
            .unwrap_or_default()
    }

    /// Returns `priority` and `priority_class` of all trials.
    #[must_use]
    pub fn priority(&self) -> (Option<i32>, Option<String>) {
        let said = |field| self.job.as_ref().and_then(|job| job.get(field));
        (
            said("priority").and_then(|number| i32::deserialize(number).ok()),
            said("priority_class").and_then(|name| String::deserialize(name).ok()),
        )
    }

    /// Sets the priority of all trials.
    pub fn set_priority(&mut self, priority: i32) {
        if let Some(job) = self.job.as_mut().and_then(Value::as_object_mut) {
            job.insert("priority".to_owned(), priority.into());
        }
    }

    /// Returns the fields of the job that the study sets.
    fn own_fields(&self) -> Vec<&str> {
        let mut fields = OWN.to_vec();
        // Rules of tenants and of priorities are checked once, for the study's own job.
        fields.extend(["pod", "preemption", "priority", "priority_class"]);
        fields.extend(["array", "after", "from", "interactive"]);
        fields.push(stop_field(self.search.budget.unit));
        fields.extend(self.search.budget.field.as_deref());
        fields
    }

    /// Checks trials at the ends of every range and with every choice, up to a limit. An error
    /// counts against the parameter if only its value makes the job unreadable, or if the broken
    /// rule concerns its field. Otherwise it counts against the job.
    fn check_fields(&self, space: &Space) -> Vec<FieldError> {
        let mut errors = Errors::default();
        space.check_targets(&self.own_fields(), &mut errors);
        if !errors.0.is_empty() {
            return within_search(errors.0);
        }
        let most = probes_each(
            space,
            self.job.as_ref().map_or(0, |job| job.to_string().len()),
        );
        let (mut by_parameter, mut by_job) = (Vec::new(), Vec::new());
        for (i, dimension) in space.dimensions.iter().enumerate() {
            for value in probes(&dimension.domain, most) {
                let mut point = point_with(space, i);
                point[i] = Some(value);
                space.prune(&mut point);
                let Err(broken) = self.check_trial(space, &point) else {
                    continue;
                };
                let shown = dimension.domain.value(value);
                let (guilty, expected) = match broken {
                    Broken::Unreadable(expected) => {
                        point[i] = None;
                        let same = Err(Broken::Unreadable(expected.clone()));
                        (self.check_trial(space, &point) != same, expected)
                    }
                    Broken::Rules(errors) => {
                        let about = errors.iter().find(|e| is_about(e, &dimension.target));
                        let shown = about.unwrap_or(&errors[0]).to_string();
                        (about.is_some(), shown)
                    }
                };
                let (list, field) = if guilty {
                    (&mut by_parameter, format!("search.parameters[{i}]"))
                } else {
                    (&mut by_job, "job".to_owned())
                };
                list.push(FieldError {
                    field,
                    value: format!("{shown} for {:?}", dimension.target),
                    expected,
                });
                break;
            }
        }
        by_job.truncate(1);
        by_parameter.extend(by_job);
        by_parameter
    }

    fn check_trial(&self, space: &Space, point: &[Option<f64>]) -> Result<(), Broken> {
        let job = self
            .trial(space, 0, point, 0, self.search.budget.max)
            .map_err(|error| Broken::Unreadable(error.expected))?;
        job.validate().map_err(Broken::Rules)
    }
}

/// Whether trials that continue from each other's state may differ in this field.
fn may_differ(field: &str) -> bool {
    let within = ["engine.optimizer.", "engine.schedule."];
    let whole = [
        "engine.batch",
        "engine.clip_norm",
        "engine.accumulate",
        "engine.seed",
        "engine.model.dropout",
    ];
    let within = within.iter().any(|start| field.starts_with(start));
    field != "engine.optimizer.kind" && (within || whole.contains(&field))
}

/// Prefixes the fields of errors with `search.`.
fn within_search(errors: Vec<FieldError>) -> Vec<FieldError> {
    let inside = errors.into_iter().map(|e| FieldError {
        field: format!("search.{}", e.field),
        ..e
    });
    inside.collect()
}

/// Error in the job of a trial.
#[derive(PartialEq)]
enum Broken {
    /// It is not a job document.
    Unreadable(String),
    Rules(Vec<FieldError>),
}

/// Whether the error concerns the field or a part of it.
fn is_about(error: &FieldError, target: &str) -> bool {
    let rest = error.field.strip_prefix(target);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Returns a point in the middle of the space that has parameter `d`.
fn point_with(space: &Space, d: usize) -> Point {
    let mut point: Point = space
        .dimensions
        .iter()
        .map(|x| Some(x.domain.at(0.5)))
        .collect();
    let mut child = d;
    while let Some((parent, values)) = &space.dimensions[child].parent {
        point[*parent] = values.first().copied();
        child = *parent;
    }
    space.prune(&mut point);
    point
}

/// Returns the number of choices of one parameter that are checked. It bounds the work over all
/// parameters, however large the document is.
fn probes_each(space: &Space, bytes: usize) -> usize {
    let all = (PROBED_BYTES / bytes.max(1)).min(PROBES);
    (all / space.dimensions.len().max(1)).max(2)
}

/// Returns the ends of a range, or every choice. Of more than `most` choices: the first, the last
/// and others at even distances.
fn probes(domain: &Domain, most: usize) -> Vec<f64> {
    match domain {
        Domain::Categorical { choices, .. } => {
            let (last, tried) = (choices.len() - 1, choices.len().min(most));
            (0..tried)
                .map(|i| (i * last / (tried - 1).max(1)) as f64)
                .collect()
        }
        _ => vec![domain.at(0.0), domain.at(1.0)],
    }
}

fn stop_field(unit: BudgetUnit) -> &'static str {
    match unit {
        BudgetUnit::Epochs => "stop.epochs",
        BudgetUnit::Steps => "stop.steps",
    }
}

/// Arguments and variables of a program are texts, for any type of the parameter.
fn as_text(path: &str, value: Value) -> Value {
    let text = ["command.argv[", "command.env."];
    let is_text = text.iter().any(|start| path.starts_with(start));
    match value {
        Value::Number(_) | Value::Bool(_) if is_text => Value::from(value.to_string()),
        other => other,
    }
}

/// Writes `value` at a path such as `engine.model.hidden[0]`. The last name may be new; an index
/// must exist.
fn set(document: &mut Value, path: &str, value: Value) -> Result<(), FieldError> {
    let value = as_text(path, value);
    let wrong = |expected: String| FieldError {
        field: path.to_owned(),
        value: value.to_string(),
        expected,
    };
    let mut here = document;
    for segment in path.split('.') {
        let (name, indices) = match segment.split_once('[') {
            Some((name, rest)) => (name, rest.split('[').collect()),
            None => (segment, Vec::new()),
        };
        let Value::Object(map) = here else {
            return Err(wrong(format!(
                "a field of the job document; nothing in {path:?} is called {name:?}"
            )));
        };
        here = map
            .entry(name.to_owned())
            .or_insert_with(|| Value::Object(serde_json::Map::new()));
        for index in indices {
            // Numbers have one spelling. Otherwise two parameters could write one place under two
            // names.
            let number = index.strip_suffix(']').and_then(|text| {
                let number = text.parse::<usize>().ok()?;
                (number.to_string() == text).then_some(number)
            });
            let found = number.and_then(|n| here.get_mut(n));
            here = found.ok_or_else(|| {
                wrong(format!(
                    "a field of the job document; [{index} is not there"
                ))
            })?;
        }
    }
    *here = value;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Domain, PROBED_BYTES, PROBES, Space, probes, probes_each};

    fn space(parameters: usize, choices: usize) -> Space {
        let choices: Vec<String> = (0..choices).map(|i| format!("c{i}")).collect();
        let parameters: Vec<_> = (0..parameters)
            .map(|i| serde_json::json!({"name": format!("p{i}"), "type": "categorical", "choices": choices}))
            .collect();
        let document = serde_json::json!({
            "objectives": [{"metric": "loss", "goal": "minimize"}], "trials": 1,
            "parameters": parameters,
        });
        let spec: crate::study::SearchSpec = serde_json::from_value(document).expect("a search");
        spec.space().expect("a space")
    }

    fn tried(space: &Space, bytes: usize) -> usize {
        let most = probes_each(space, bytes);
        let domains = space.dimensions.iter().map(|one| &one.domain);
        domains.map(|domain| probes(domain, most).len()).sum()
    }

    #[test]
    fn array_of_trials_is_refused() {
        let document = serde_json::json!({
            "version": "muster/v1", "kind": "study", "name": "s",
            "search": {
                "objectives": [{"metric": "loss", "goal": "minimize"}], "trials": 1,
                "parameters": [{"name": "a", "type": "categorical", "choices": ["x", "y"]}],
            },
            "job": {"array": {"name": "folds", "parallel": 1}},
        });
        let study: super::StudySpec = serde_json::from_value(document).expect("a study");
        let errors = study.validate().expect_err("an array");
        assert!(
            errors.iter().any(|error| error.field == "job.array"),
            "{errors:?}"
        );
    }

    #[test]
    fn number_of_tried_choices_is_bounded() {
        assert_eq!(tried(&space(3, 1000), 1000), 3000);
        assert!(tried(&space(128, 1000), 1000) <= PROBES);
        assert_eq!(tried(&space(128, 1000), 1 << 20), 256);
        assert!(tried(&space(2, 1000), 1 << 20) <= PROBED_BYTES >> 20);
        let domain: &Domain = &space(1, 1000).dimensions[0].domain;
        assert_eq!(probes(domain, 4), [0.0, 333.0, 666.0, 999.0]);
        assert_eq!(probes(&space(1, 1).dimensions[0].domain, 4), [0.0]);
    }
}
