//! Text about objectives that a program has not logged, with the names that it has. Pure.

/// Maximum number of names in the text.
const NAMES_SHOWN: usize = 20;

/// Returns why a trial without values of the `missing` objectives has failed. `logged` are the
/// names of all metrics of its job.
pub(super) fn not_logged(missing: &[&str], logged: &[String]) -> String {
    let wanted = missing.join(", ");
    if logged.is_empty() {
        return format!(
            "its job ended without having logged {wanted}, or any other metric (docs/commands.md tells how a program logs)"
        );
    }
    let names = logged.iter().take(NAMES_SHOWN).map(String::as_str);
    let mut shown = names.collect::<Vec<_>>().join(", ");
    if logged.len() > NAMES_SHOWN {
        shown.push_str(&format!(" and {} more", logged.len() - NAMES_SHOWN));
    }
    let meant = missing
        .iter()
        .filter_map(|name| nearest(name, logged))
        .map(|name| format!("; did you mean {name:?}?"))
        .collect::<String>();
    format!("its job ended without having logged {wanted}; it logged {shown}{meant}")
}

/// Returns the most similar name, if it differs in at most a third of its characters.
fn nearest<'a>(wanted: &str, names: &'a [String]) -> Option<&'a str> {
    let wanted = plain(wanted);
    let distances = names
        .iter()
        .map(|name| (distance(&wanted, &plain(name)), name.as_str()));
    let (distance, name) = distances.min()?;
    (distance * 3 <= wanted.len()).then_some(name)
}

/// Letters and digits of a name, because `val/f1` and `val_F1` mean the same.
fn plain(name: &str) -> Vec<char> {
    let lower = name.chars().flat_map(char::to_lowercase);
    lower.filter(|c| c.is_alphanumeric()).collect()
}

/// Number of characters to insert, delete or replace (Levenshtein).
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn similar_name_is_suggested() {
        let logged = names(&["loss", "val/F1", "val/precision"]);
        for wanted in ["val_f1", "val/f2", "valf1"] {
            assert_eq!(nearest(wanted, &logged), Some("val/F1"), "{wanted}");
        }
        assert_eq!(nearest("recall", &logged), None);
        assert_eq!(
            not_logged(&["val_f1"], &logged),
            "its job ended without having logged val_f1; it logged loss, val/F1, val/precision; did you mean \"val/F1\"?"
        );
    }

    #[test]
    fn long_lists_of_names_are_cut() {
        let logged: Vec<String> = (0..25).map(|i| format!("layer{i:02}")).collect();
        let text = not_logged(&["recall"], &logged);
        assert!(text.ends_with("layer19 and 5 more"), "{text}");
        assert!(not_logged(&["f1"], &[]).contains("or any other metric"));
    }
}
