//! Patterns for names of files.

/// Whether a name matches a pattern in which `*` stands for any characters and `?` for one.
#[must_use]
pub fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut here) = (0, 0);
    // Place after the newest `*`, and the first character of the name that it does not cover yet.
    let mut star: Option<(usize, usize)> = None;
    while here < name.len() {
        match pattern.get(at) {
            Some('*') => {
                at += 1;
                star = Some((at, here));
            }
            Some(&wanted) if wanted == '?' || wanted == name[here] => {
                at += 1;
                here += 1;
            }
            _ => {
                let Some((after, covered)) = star else {
                    return false;
                };
                (at, here) = (after, covered + 1);
                star = Some((after, covered + 1));
            }
        }
    }
    pattern[at..].iter().all(|&rest| rest == '*')
}

/// Returns the last number in a name, such as 10 for `checkpoint-10.pt`. The ending after the last
/// `.` does not count, unless nothing else has a number.
#[must_use]
pub fn number_in(name: &str) -> Option<u64> {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    last_number(stem).or_else(|| last_number(name))
}

fn last_number(text: &str) -> Option<u64> {
    let numbers = text.split(|character: char| !character.is_ascii_digit());
    numbers.filter_map(|digits| digits.parse().ok()).next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_matches_whole_names() {
        for (pattern, name, expected) in [
            ("checkpoint-*", "checkpoint-10", true),
            ("checkpoint-*", "checkpoint-", true),
            ("checkpoint-*", "my-checkpoint-1", false),
            ("*.pt", "a.pt.tmp", false),
            ("*.pt", "a.pt.pt", true),
            ("step-??.pt", "step-10.pt", true),
            ("step-??.pt", "step-100.pt", false),
            ("*a*b", "xaybzb", true),
            ("last", "last", true),
            ("", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }

    #[test]
    fn number_of_a_name_is_its_last_one() {
        for (name, expected) in [
            ("checkpoint-10", Some(10)),
            ("epoch=3-step=1200.ckpt", Some(1200)),
            ("model.pt2", Some(2)),
            ("step-7.pt2", Some(7)),
            ("last.pt", None),
            ("x-99999999999999999999999", None),
        ] {
            assert_eq!(number_in(name), expected, "{name}");
        }
    }
}
