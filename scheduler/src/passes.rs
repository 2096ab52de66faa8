//! Passes of a loop, each with a time limit.

use muster_model::error_chain::chain;
use std::time::Duration;

/// Runs one pass of the loop `name`. Logs a pass that fails or exceeds `limit` and returns `None`.
pub async fn one<T, E: std::error::Error>(
    name: &'static str,
    limit: Duration,
    pass: impl Future<Output = Result<T, E>>,
) -> Option<T> {
    match tokio::time::timeout(limit, pass).await {
        Ok(Ok(done)) => Some(done),
        Ok(Err(error)) => {
            tracing::warn!(name, error = %chain(&error), "a pass failed; the loop begins anew");
            None
        }
        Err(_) => {
            let limit_s = limit.as_secs();
            tracing::error!(
                name,
                limit_s,
                "a pass took too long and was ended; the loop begins anew"
            );
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::one;
    use std::time::Duration;

    #[tokio::test]
    async fn pass_is_ended_at_its_time_limit() {
        let stuck = std::future::pending::<Result<(), std::fmt::Error>>();
        assert_eq!(one("rounds", Duration::from_millis(10), stuck).await, None);
    }
}
