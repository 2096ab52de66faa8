//! The existing name that a wrong name probably means.

use std::collections::BTreeSet;

/// Maximum number of single-character changes between similar names.
const MOST_CHANGES: usize = 2;

/// Returns the most similar of the known names, regardless of case and separators.
#[must_use]
pub fn similar<'k>(name: &str, known: &'k BTreeSet<String>) -> Option<&'k str> {
    let wanted = plain(name);
    let distances = known
        .iter()
        .map(|known| (changes(&wanted, &plain(known)), known.as_str()));
    let nearest = distances.min().filter(|(distance, _)| {
        // A short name is within two changes of every other short name.
        *distance <= MOST_CHANGES.min(wanted.len() / 3)
    });
    nearest.map(|(_, name)| name)
}

fn plain(name: &str) -> Vec<u8> {
    let lower = name.bytes().map(|byte| byte.to_ascii_lowercase());
    lower.filter(u8::is_ascii_alphanumeric).collect()
}

/// Returns the Levenshtein distance.
fn changes(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn similar_names_ignore_case_and_separators() {
        let known = ["WANDB_API_KEY", "HF_TOKEN", "a"].map(str::to_owned);
        let known = BTreeSet::from(known);
        assert_eq!(similar("wandb-api-key", &known), Some("WANDB_API_KEY"));
        assert_eq!(similar("HF_TOKNE", &known), Some("HF_TOKEN"));
        assert_eq!(similar("OTHER", &known), None);
        assert_eq!(similar("b", &known), None);
    }
}
