//! Planning and what-if questions. The API server stores a question, the scheduler answers it.

use crate::spec::{FieldError, JobSpec};
use crate::view::{PlanView, WhatIf, WhatIfView};
use serde::{Deserialize, Serialize};

/// Maximum number of nodes in one assumed addition.
pub const MOST_NODES: u32 = 10_000;
/// Maximum number of GPUs of an assumed node.
pub const MOST_NODE_GPUS: u32 = 64;
/// Maximum number of changes of one kind in one question.
pub const MOST_CHANGES: usize = 32;

/// A planning question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Question {
    /// Start and end of a job that the tenant might submit.
    Plan {
        job: Box<JobSpec>,
        /// Step at which the job starts if it starts from another job's checkpoint.
        #[serde(default)]
        begins: u64,
    },
    /// For administrators: changes and answer concern all tenants.
    WhatIf { changes: WhatIf },
}

/// Answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Answer {
    Plan {
        plan: PlanView,
    },
    WhatIf {
        comparison: WhatIfView,
    },
    /// The question names an object that does not exist.
    Refused {
        error: FieldError,
    },
    /// The scheduler aborted the computation; a repetition may fail again.
    Failed {
        why: String,
    },
}

impl WhatIf {
    /// Checks that the question can be answered.
    ///
    /// # Errors
    /// One [`FieldError`] per wrong field, including those of the documents.
    pub fn validate(&self) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut wrong = |field: String, value: String, expected: String| {
            errors.push(FieldError {
                field,
                value,
                expected,
            });
        };
        let counts = [
            ("add_nodes", self.add_nodes.len()),
            ("quotas", self.quotas.len()),
            ("jobs", self.jobs.len()),
        ];
        for (field, count) in counts {
            if count > MOST_CHANGES {
                let expected = format!("at most {MOST_CHANGES}");
                wrong(field.to_owned(), format!("{count} of them"), expected);
            }
        }
        if counts.iter().all(|&(_, count)| count == 0) {
            let expected = "something to change: add_nodes, quotas or jobs".to_owned();
            wrong("the document".to_owned(), "no change".to_owned(), expected);
        }
        for (index, add) in self.add_nodes.iter().enumerate() {
            let numbers = [
                ("nodes", add.nodes, MOST_NODES),
                ("gpus", add.gpus, MOST_NODE_GPUS),
            ];
            for (name, value, most) in numbers {
                if !(1..=most).contains(&value) {
                    let field = format!("add_nodes[{index}].{name}");
                    wrong(field, value.to_string(), format!("1 to {most}"));
                }
            }
        }
        for (index, job) in self.jobs.iter().enumerate() {
            if job.job.from.is_some() {
                let expected = "left out: a job that is only imagined here begins fresh";
                let field = format!("jobs[{index}].job.from");
                wrong(field, "given".to_owned(), expected.to_owned());
            }
            for error in job.job.validate().err().into_iter().flatten() {
                let field = format!("jobs[{index}].job.{}", error.field);
                wrong(field, error.value, error.expected);
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }
}
