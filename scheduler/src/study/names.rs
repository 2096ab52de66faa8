//! Text about objectives that a program has not logged, with the names that it has. Pure.

use muster_model::text::similar;

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
    if let Some(name) = missing
        .iter()
        .find(|name| logged.iter().any(|one| one == *name))
    {
        return format!(
            "its job logged {name}, but its node did not report it to the study: the executor is of an earlier release; upgrade it and create the study again"
        );
    }
    let names = logged.iter().take(NAMES_SHOWN).map(String::as_str);
    let mut shown = names.collect::<Vec<_>>().join(", ");
    if logged.len() > NAMES_SHOWN {
        shown.push_str(&format!(" and {} more", logged.len() - NAMES_SHOWN));
    }
    let meant = missing
        .iter()
        .filter_map(|name| similar(name, logged.iter().map(String::as_str)))
        .map(|name| format!("; did you mean {name:?}?"))
        .collect::<String>();
    format!("its job ended without having logged {wanted}; it logged {shown}{meant}")
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
        let unreported = not_logged(&["layer03"], &logged);
        assert!(unreported.contains("earlier release"), "{unreported}");
    }
}
