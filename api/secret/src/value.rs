//! The value of a secret in memory.

use std::fmt;
use zeroize::Zeroizing;

/// Maximum length of a value.
pub const MAX_VALUE_BYTES: usize = 64 << 10;

/// A text that is overwritten when it is dropped and that no format prints.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Zeroizing<String>);

impl SecretValue {
    /// Returns the text, for the few places that need it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Whether it may be stored: 1 byte to [`MAX_VALUE_BYTES`] without NUL, which neither a
    /// variable nor an argument can hold.
    #[must_use]
    pub fn is_allowed(&self) -> bool {
        (1..=MAX_VALUE_BYTES).contains(&self.0.len()) && !self.0.contains('\0')
    }
}

impl From<String> for SecretValue {
    fn from(text: String) -> Self {
        Self(Zeroizing::new(text))
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_is_never_printed() {
        let value = SecretValue::from("hunter2".to_owned());
        assert_eq!(
            format!("{value:?} {:#?}", Some(&value)).find("hunter"),
            None
        );
        assert_eq!(value.expose(), "hunter2");
    }

    #[test]
    fn empty_long_and_nul_values_are_not_allowed() {
        let allowed = |text: String| SecretValue::from(text).is_allowed();
        assert!(allowed("x".repeat(MAX_VALUE_BYTES)) && allowed("ä\n".to_owned()));
        for wrong in [
            String::new(),
            "x".repeat(MAX_VALUE_BYTES + 1),
            "a\0b".to_owned(),
        ] {
            assert!(!allowed(wrong));
        }
    }
}
