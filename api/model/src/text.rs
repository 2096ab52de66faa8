//! Parts of texts for users.

use time::OffsetDateTime;

/// Returns the number with the form of the word that it takes: `1 job`, `2 jobs`.
pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the known name that a wrong name probably means. Case and separators do not count. At
/// most a third of the characters differ, or the wrong name begins with the known one.
#[must_use]
pub fn similar<'k>(wrong: &str, known: impl IntoIterator<Item = &'k str>) -> Option<&'k str> {
    /// `batchsize` means `batch`, but `not` does not mean `no`.
    const FEWEST_IN_COMMON: usize = 4;
    let wrong = plain(wrong);
    let distances = known.into_iter().map(|name| {
        let known = plain(name);
        let begins_it = known.len() >= FEWEST_IN_COMMON && wrong.starts_with(&known);
        let distance = strsim::damerau_levenshtein(&wrong, &known);
        (if begins_it { 0 } else { distance }, name)
    });
    let (distance, name) = distances.min()?;
    (distance * 3 <= wrong.chars().count()).then_some(name)
}

/// Letters and digits, because `val/f1` and `val_F1` mean the same.
fn plain(name: &str) -> String {
    let lower = name.chars().flat_map(char::to_lowercase);
    lower.filter(|c| c.is_alphanumeric()).collect()
}

/// Returns the time before a line of a log: RFC 3339, UTC, milliseconds; `-` if it is not known.
#[must_use]
pub fn log_time(at: Option<OffsetDateTime>) -> String {
    let format = time::macros::format_description!(
        "[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z"
    );
    let text = at.and_then(|at| at.to_offset(time::UtcOffset::UTC).format(format).ok());
    text.unwrap_or_else(|| "-".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_names_are_recognised() {
        let fields = [
            "model",
            "dataset",
            "optimizer",
            "batch",
            "batch_rule",
            "seed",
        ];
        let metrics = ["loss", "val/F1", "val/precision"];
        let secrets = ["WANDB_API_KEY", "HF_TOKEN", "a"];
        for (wrong, known, expected) in [
            ("batchsize", &fields[..], Some("batch")),
            ("optimiser", &fields, Some("optimizer")),
            ("data_set", &fields, Some("dataset")),
            ("learning_rate", &fields, None),
            ("val_f1", &metrics, Some("val/F1")),
            ("val/f2", &metrics, Some("val/F1")),
            ("recall", &metrics, None),
            ("wandb-api-key", &secrets, Some("WANDB_API_KEY")),
            ("HF_TOKNE", &secrets, Some("HF_TOKEN")),
            ("OTHER", &secrets, None),
            ("b", &secrets, None),
            ("x", &[], None),
        ] {
            assert_eq!(similar(wrong, known.iter().copied()), expected, "{wrong}");
        }
    }

    #[test]
    fn times_of_logs_have_equal_width() {
        let at = time::macros::datetime!(2026-01-02 03:04:05.6 +02:00);
        assert_eq!(log_time(Some(at)), "2026-01-02T01:04:05.600Z");
        assert_eq!(log_time(None), "-");
    }
}
