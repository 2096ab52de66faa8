//! Classification of an answer of the API server, or of its absence: repeatable, final, or final
//! once it has persisted.

use super::mirror::{PodPresence, PodRequest};
use muster_model::id::TaskId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Time limit of an answer.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// Time after which a forbidden request counts as refused. A server that has just started does not
/// know all permissions yet, and a quota may be raised.
const FORBIDDEN_FOR: Duration = Duration::from_secs(30);
/// Client errors (4xx) that may succeed later.
const LATER: [u16; 4] = [401, 408, 425, 429];

/// Reason why a pod request is not fulfilled.
#[derive(Debug, PartialEq, Eq)]
pub enum PodRequestFailure {
    /// The server did not answer.
    Away(String),
    /// The server refused; a repetition may succeed.
    Again(String),
    /// The server forbids the request, perhaps only for now.
    Forbidden(String),
}

impl PodRequestFailure {
    #[must_use]
    pub fn words(&self) -> &str {
        match self {
            Self::Away(words) | Self::Again(words) | Self::Forbidden(words) => words,
        }
    }

    /// Returns the server's message, if it answered.
    #[must_use]
    pub fn said(self) -> Option<String> {
        match self {
            Self::Away(_) => None,
            Self::Again(words) | Self::Forbidden(words) => Some(words),
        }
    }
}

impl From<String> for PodRequestFailure {
    fn from(words: String) -> Self {
        Self::Again(words)
    }
}

/// Time since which the creation of each pod is forbidden.
#[derive(Debug, Default)]
pub struct Forbidden(BTreeMap<TaskId, u64>);

impl Forbidden {
    /// Forgets tasks without a pod request.
    pub fn retain(&mut self, requests: &[(TaskId, PodRequest)]) {
        self.0
            .retain(|task, _| requests.iter().any(|(requested, _)| requested == task));
    }

    /// Converts a request that has been forbidden for long enough into a refusal.
    pub fn judge(
        &mut self,
        task: TaskId,
        done: Result<Option<PodPresence>, PodRequestFailure>,
        now_ms: u64,
    ) -> Result<Option<PodPresence>, PodRequestFailure> {
        match done {
            Ok(presence) => Ok(presence),
            Err(failure @ (PodRequestFailure::Away(_) | PodRequestFailure::Again(_))) => {
                Err(failure)
            }
            Err(PodRequestFailure::Forbidden(words)) => {
                let since_ms = *self.0.entry(task).or_insert(now_ms);
                let is_final = u128::from(now_ms - since_ms) >= FORBIDDEN_FOR.as_millis();
                if is_final {
                    Ok(Some(PodPresence::Refused(words)))
                } else {
                    Err(PodRequestFailure::Forbidden(words))
                }
            }
        }
    }
}

/// An answer that a repetition would not change.
pub struct PermanentApiError {
    pub code: u16,
    pub message: String,
}

/// Awaits an answer within the time limit.
///
/// # Errors
/// A failure that may not recur.
pub async fn answered<T>(
    asked: impl Future<Output = Result<T, kube::Error>>,
) -> Result<Result<T, PermanentApiError>, PodRequestFailure> {
    match tokio::time::timeout(PATIENCE, asked).await {
        Err(_) => Err(PodRequestFailure::Away("no answer came in time".to_owned())),
        Ok(Ok(answer)) => Ok(Ok(answer)),
        Ok(Err(kube::Error::Api(status)))
            if (400..500).contains(&status.code) && !LATER.contains(&status.code) =>
        {
            Ok(Err(PermanentApiError {
                code: status.code,
                message: status.message.clone(),
            }))
        }
        Ok(Err(error @ kube::Error::Api(_))) => {
            Err(muster_model::error_chain::chain(&error).into())
        }
        Ok(Err(error)) => Err(PodRequestFailure::Away(muster_model::error_chain::chain(
            &error,
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persistently_forbidden_request_counts_as_refused() {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let mut forbidden = Forbidden::default();
        let said = |forbidden: &mut Forbidden, now_ms| {
            let done = Err(PodRequestFailure::Forbidden("no".to_owned()));
            forbidden.judge(task, done, now_ms)
        };
        let later = Err(PodRequestFailure::Forbidden("no".to_owned()));
        assert_eq!(said(&mut forbidden, 5_000), later);
        assert_eq!(said(&mut forbidden, 34_999), later);
        let refused = Ok(Some(PodPresence::Refused("no".to_owned())));
        assert_eq!(said(&mut forbidden, 35_000), refused);
        forbidden.retain(&[]);
        assert_eq!(said(&mut forbidden, 36_000), later, "another time");
        let away = || Err(PodRequestFailure::Again("away".to_owned()));
        assert_eq!(forbidden.judge(task, away(), 99_000), away());
    }
}
