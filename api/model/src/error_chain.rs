//! Texts of errors, for logs and for messages to users.

use std::error::Error;

/// Returns the error and its sources on one line, outermost first. A source whose text is already
/// part of the line is left out, because some errors repeat the text of their source.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let text = inner.to_string();
        if !line.contains(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        source = inner.source();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::chain;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Caused {
        text: &'static str,
        source: Option<Box<Self>>,
    }

    fn caused(texts: &[&'static str]) -> Option<Box<Caused>> {
        let (text, rest) = texts.split_first()?;
        let source = caused(rest);
        Some(Box::new(Caused { text, source }))
    }

    #[test]
    fn sources_follow_their_error_and_are_not_repeated() {
        let error = caused(&["cannot read x: no space", "no space", "code 28"]).expect("an error");
        assert_eq!(chain(&*error), "cannot read x: no space: code 28");
    }
}
