//! Parts of texts for users.

/// Returns the number with the form of the word that it takes: `1 job`, `2 jobs`.
pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
