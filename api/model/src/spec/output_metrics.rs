//! `command.metrics`: patterns by which metrics are read from lines of a program's output.

use regex::{Regex, RegexBuilder};
use std::collections::BTreeMap;

/// Key whose pattern finds the step of the values.
pub const STEP: &str = "step";

/// Maximum size of a compiled pattern, in bytes.
const MAX_COMPILED_BYTES: usize = 1 << 18;

/// Number of a pattern that is derived from a name, such as `-1.5e-3`.
const NUMBER: &str = r"([-+]?[0-9]*\.?[0-9]+(?:[eE][-+]?[0-9]+)?)";

/// Why a pattern cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OutputPatternError {
    #[error("{0}")]
    Invalid(String),
    #[error("it has no group in parentheses, which would match the number")]
    NoGroup,
}

/// The compiled patterns of a document.
#[derive(Debug, Clone, Default)]
pub struct OutputPatterns {
    step: Option<Regex>,
    metrics: Vec<(String, Regex)>,
}

/// What one line of output contains.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OutputValues<'a> {
    pub step: Option<u64>,
    pub metrics: Vec<(&'a str, f64)>,
}

impl OutputPatterns {
    /// Compiles patterns by name. Invalid patterns are left out: validation refuses them.
    #[must_use]
    pub fn new(patterns: &BTreeMap<String, String>) -> Self {
        let mut compiled = Self::default();
        for (name, pattern) in patterns {
            match compile(name, pattern) {
                Ok(pattern) if name == STEP => compiled.step = Some(pattern),
                Ok(pattern) => compiled.metrics.push((name.clone(), pattern)),
                Err(_) => {}
            }
        }
        compiled
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.metrics.is_empty()
    }

    /// Returns the values of a line: of each pattern the last match. A match that is no number is
    /// left out.
    #[must_use]
    pub fn read(&self, line: &str) -> OutputValues<'_> {
        let step = self.step.as_ref().and_then(|step| number(step, line));
        let metrics = self.metrics.iter();
        OutputValues {
            // Fractions are cut: some programs print an epoch of 1.5.
            step: step.filter(|step| *step >= 0.0).map(|step| step as u64),
            metrics: metrics
                .filter_map(|(name, pattern)| Some((name.as_str(), number(pattern, line)?)))
                .collect(),
        }
    }
}

/// Compiles the pattern of a name. Without a pattern, the name is searched as a whole word in any
/// case, then `:` or `=`, then a number; quotation marks may be between them.
///
/// # Errors
/// [`OutputPatternError`].
pub fn compile(name: &str, pattern: &str) -> Result<Regex, OutputPatternError> {
    let derived;
    let pattern = if pattern.is_empty() {
        let name = regex::escape(name);
        derived = format!(r#"(?i)(?:^|[^\w/.-]){name}['"]?\s*[:=]\s*['"]?{NUMBER}"#);
        &derived
    } else {
        pattern
    };
    let compiled = RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .build();
    let compiled = compiled.map_err(|error| OutputPatternError::Invalid(last_line(&error)))?;
    if compiled.captures_len() < 2 {
        return Err(OutputPatternError::NoGroup);
    }
    Ok(compiled)
}

/// Returns the last line of the message, which has the reason; the others draw the place.
fn last_line(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// Returns the number of the first group that matched, in the last match of the line.
fn number(pattern: &Regex, line: &str) -> Option<f64> {
    let found = pattern.captures_iter(line).last()?;
    let group = found.iter().skip(1).flatten().next()?;
    group.as_str().trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(pairs: &[(&str, &str)]) -> OutputPatterns {
        let pairs = pairs.iter();
        OutputPatterns::new(
            &pairs
                .map(|(name, pattern)| ((*name).to_owned(), (*pattern).to_owned()))
                .collect(),
        )
    }

    #[test]
    fn name_alone_finds_usual_ways_of_printing() {
        let patterns = patterns(&[("loss", ""), ("val_acc", "")]);
        let loss = |line| {
            let mut metrics = patterns.read(line).metrics.into_iter();
            metrics
                .find(|(name, _)| *name == "loss")
                .map(|(_, value)| value)
        };
        assert_eq!(
            loss("Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.300024"),
            Some(2.300_024)
        );
        assert_eq!(loss("{'loss': '4.033', 'epoch': '0.25'}"), Some(4.033));
        assert_eq!(loss("step=3 loss=1e-2 val_acc = 0.5"), Some(0.01));
        assert_eq!(loss("loss:-.5"), Some(-0.5));
        assert_eq!(
            loss("10/40 loss: 0.9 20/40 loss: 0.7"),
            Some(0.7),
            "the last one"
        );
        assert_eq!(
            loss("'eval_loss': 4.0, train/loss=1, no-loss: 2, xloss: 3"),
            None
        );
        assert_eq!(loss("loss is 3"), None);
        assert_eq!(loss("loss: nothing"), None);
        assert_eq!(patterns.read("val_acc=0.5").metrics, [("val_acc", 0.5)]);
    }

    #[test]
    fn pattern_gives_number_and_step() {
        let patterns = patterns(&[
            ("accuracy", r"Accuracy: \d+/\d+ \((\d+)%\)"),
            ("step", r"Epoch:? (\d+)|epoch=(\d+)"),
        ]);
        let read = patterns.read("Epoch 3 Test set: Accuracy: 9835/10000 (98%)");
        assert_eq!(
            (read.step, read.metrics),
            (Some(3), vec![("accuracy", 98.0)])
        );
        assert_eq!(patterns.read("epoch=7").step, Some(7));
        assert_eq!(patterns.read("nothing"), OutputValues::default());
    }

    #[test]
    fn invalid_pattern_gives_its_reason() {
        let without = compile("x", "Loss").expect_err("no group");
        assert_eq!(without, OutputPatternError::NoGroup);
        let unclosed = compile("x", "Loss (").expect_err("invalid");
        assert!(
            unclosed.to_string().contains("unclosed group"),
            "{unclosed}"
        );
        let huge = compile("x", r"(\w{1000}){1000}").expect_err("too large");
        assert!(huge.to_string().contains("size limit"), "{huge}");
    }
}
