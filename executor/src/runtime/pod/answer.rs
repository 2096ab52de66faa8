//! One answer of the API server, or that there was none: what may be otherwise the next time, what will be the same, and what counts as that
//! once it was so for a while.

use super::mirror::{Known, Wish};
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::time::Duration;

/// For one answer.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// What a server forbids for so long it will forbid again: one that has just started does not know all its rights yet, and a quota may be
/// raised.
const FORBIDDEN_FOR: Duration = Duration::from_secs(30);
/// Answers of the 400s that mean "later".
const LATER: [u16; 4] = [401, 408, 425, 429];

/// Why a wish did not come true, in words.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// The server was not heard.
    Away(String),
    /// It says so, and may say otherwise the next time.
    Again(String),
    /// The server will not let us, or not yet.
    Forbidden(String),
}

impl Failure {
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Away(words) | Self::Again(words) | Self::Forbidden(words) => words,
        }
    }

    /// What the server has said.
    #[must_use]
    pub fn said(self) -> Option<String> {
        match self {
            Self::Away(_) => None,
            Self::Again(words) | Self::Forbidden(words) => Some(words),
        }
    }
}

impl From<String> for Failure {
    fn from(words: String) -> Self {
        Self::Again(words)
    }
}

/// Since when pods are forbidden that are to be made.
#[derive(Debug, Default)]
pub struct Forbidden(BTreeMap<TaskId, u64>);

impl Forbidden {
    /// Those for which nothing is wished any more are forgotten.
    pub fn retain(&mut self, wishes: &[(TaskId, Wish)]) {
        self.0
            .retain(|task, _| wishes.iter().any(|(wished, _)| wished == task));
    }

    /// What was forbidden for long enough was refused.
    pub fn judge(
        &mut self,
        task: TaskId,
        done: Result<Option<Known>, Failure>,
        now_ms: u64,
    ) -> Result<Option<Known>, Failure> {
        match done {
            Ok(known) => Ok(known),
            Err(failure @ (Failure::Away(_) | Failure::Again(_))) => Err(failure),
            Err(Failure::Forbidden(words)) => {
                let since_ms = *self.0.entry(task).or_insert(now_ms);
                let is_final = u128::from(now_ms - since_ms) >= FORBIDDEN_FOR.as_millis();
                match is_final {
                    true => Ok(Some(Known::Refused(words))),
                    false => Err(Failure::Forbidden(words)),
                }
            }
        }
    }
}

/// An answer that the server will give again.
pub struct Refusal {
    pub code: u16,
    pub message: String,
}

/// # Errors
/// What may be otherwise the next time.
pub async fn answered<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, Refusal>, Failure> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Err(_) => Err(Failure::Away("no answer came in time".to_owned())),
        Ok(Ok(answer)) => Ok(Ok(answer)),
        Ok(Err(kube::Error::Api(status)))
            if (400..500).contains(&status.code) && !LATER.contains(&status.code) =>
        {
            Ok(Err(Refusal {
                code: status.code,
                message: status.message.clone(),
            }))
        }
        Ok(Err(error @ kube::Error::Api(_))) => Err(crate::shim::describe(&error).into()),
        Ok(Err(error)) => Err(Failure::Away(crate::shim::describe(&error))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forbidden_is_refused_once_it_was_so_for_a_while() {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let mut forbidden = Forbidden::default();
        let said = |forbidden: &mut Forbidden, now_ms| {
            let done = Err(Failure::Forbidden("no".to_owned()));
            forbidden.judge(task, done, now_ms)
        };
        let later = Err(Failure::Forbidden("no".to_owned()));
        assert_eq!(said(&mut forbidden, 5_000), later);
        assert_eq!(said(&mut forbidden, 34_999), later);
        let refused = Ok(Some(Known::Refused("no".to_owned())));
        assert_eq!(said(&mut forbidden, 35_000), refused);
        forbidden.retain(&[]);
        assert_eq!(said(&mut forbidden, 36_000), later, "another time");
        let away = || Err(Failure::Again("away".to_owned()));
        assert_eq!(forbidden.judge(task, away(), 99_000), away());
    }
}
