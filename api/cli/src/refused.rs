//! Refusals of a document, with the lines of its file.

use muster_client::ClientError;
use muster_model::view::Problem;
use std::fmt::Write as _;
use std::path::Path;

/// The server refused a document; each error names its line.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct RefusedDocument(String);

/// Adds the lines of the file to the errors of a refused document. Other errors, and those of a
/// document from standard input (`-`), are returned as they are.
pub fn with_lines(error: ClientError, file: Option<&Path>) -> anyhow::Error {
    with_lines_of(error, file, "")
}

/// Does the same for a file that is the part of the document at `prefix`, such as `job.`. Errors
/// outside of this part do not name the file.
pub fn with_lines_of(error: ClientError, file: Option<&Path>, prefix: &str) -> anyhow::Error {
    let text = file.and_then(|file| std::fs::read_to_string(file).ok());
    match (error, file, text) {
        (ClientError::Problem(problem), Some(file), Some(text)) if is_of_document(&problem) => {
            let file = file.display().to_string();
            RefusedDocument(located(&problem, &file, (prefix, &text))).into()
        }
        (error, ..) => error.into(),
    }
}

/// Whether the errors are those of a document. A parameter, such as the name in the path, is not
/// part of it.
fn is_of_document(problem: &Problem) -> bool {
    !problem.errors.is_empty() && !problem.kind.ends_with("invalid-parameter")
}

fn located(problem: &Problem, file: &str, (prefix, text): (&str, &str)) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let mut said = format!("{}:", problem.title);
    for error in &problem.errors {
        let field = error.field.strip_prefix(prefix);
        let line = field.and_then(|field| line_of(&lines, field));
        let _ = match (field, line) {
            (None, _) => write!(said, "\n{error}"),
            (Some(_), None) => write!(said, "\n{file}: {error}"),
            (Some(_), Some(at)) => {
                let line = lines[at].trim();
                write!(said, "\n{file}:{}: {error}\n    {line}", at + 1)
            }
        };
    }
    said
}

/// Returns the line (from 0) of the field at a path such as `scale.workers.min`, or of its nearest
/// ancestor. Indentation and names suffice to find it in YAML and in JSON with line breaks.
fn line_of(lines: &[&str], path: &str) -> Option<usize> {
    let names = path.split(['.', '[', ']']);
    let (mut found, mut from, mut to) = (None, 0, lines.len());
    for name in names.filter(|name| !name.is_empty()) {
        if let Ok(index) = name.parse::<usize>() {
            let Some(at) = element(&lines[..to], from, index) else {
                break;
            };
            found = Some(at);
            from = at;
            to = element(&lines[..to], from, 1).unwrap_or(to);
            continue;
        }
        let Some(at) = (from..to).find(|at| has_key(lines[*at], name)) else {
            break;
        };
        found = Some(at);
        from = at;
        to = block_end(lines, at);
    }
    found
}

/// Returns the line of an element of the list that begins at or after a line. Lists in one line
/// have no lines of their own.
fn element(lines: &[&str], from: usize, index: usize) -> Option<usize> {
    let all = (from..lines.len()).filter(|at| lines[*at].trim_start().starts_with("- "));
    let first = all.clone().next()?;
    let mut own = all.filter(|at| indent(lines[*at]) == indent(lines[first]));
    own.nth(index)
}

/// Whether the line has this key, before a comment.
fn has_key(line: &str, name: &str) -> bool {
    let code = line.split(" #").next().unwrap_or_default();
    let starts = code.match_indices(name);
    let mut starts =
        starts.filter(|(at, _)| !code.trim_start().starts_with('#') && is_key(code, *at, name));
    starts.next().is_some()
}

fn is_key(code: &str, at: usize, name: &str) -> bool {
    let before = code[..at].chars().next_back();
    let is_start = before.is_none_or(|letter| letter.is_whitespace() || "{,\"'".contains(letter));
    let after = code[at + name.len()..].trim_start_matches(['"', '\'']);
    is_start && after.trim_start().starts_with(':')
}

/// Returns the first line after `at` that is not indented deeper.
fn block_end(lines: &[&str], at: usize) -> usize {
    let depth = indent(lines[at]);
    let mut after = lines.iter().enumerate().skip(at + 1);
    let end = after.find(|(_, line)| {
        let text = line.trim();
        !text.is_empty() && !text.starts_with('#') && indent(line) <= depth
    });
    end.map_or(lines.len(), |(end, _)| end)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

#[cfg(test)]
mod tests {
    use super::{is_of_document, line_of, located};
    use muster_model::view::Problem;

    fn problem(kind: &str, fields: &[&str]) -> Problem {
        let error =
            |field: &&str| serde_json::json!({ "field": field, "value": "1", "expected": "2" });
        let errors: Vec<_> = fields.iter().map(error).collect();
        let problem = serde_json::json!({
            "type": format!("urn:muster:problem:{kind}"), "title": "It is not valid", "status": 422,
            "detail": "", "errors": errors,
        });
        serde_json::from_value(problem).expect("a problem")
    }

    #[test]
    fn errors_outside_of_the_files_part_do_not_name_it() {
        let found = problem("invalid-body", &["cron", "job.name", "job.none"]);
        assert!(is_of_document(&found));
        let said = located(&found, "job.yaml", ("job.", "version: 1\nname: x"));
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines[1].starts_with("cron is 1"), "{said}");
        assert!(lines[2].starts_with("job.yaml:2: job.name is 1"), "{said}");
        assert!(lines[4].starts_with("job.yaml: job.none is 1"), "{said}");
        assert!(!is_of_document(&problem("invalid-parameter", &["name"])));
    }

    #[test]
    fn field_is_found_below_its_ancestors() {
        let text = "name: min\n# workers: none\nother: { workers: 1 }\nscale:\n  # x\n  ps_shards: { min: 1 }\n  workers:\n    max: 1\n    min: 2 # min: 3\nstop:\n  target: { \"value\": 1 }\n  list:\n    - a: 1\n      b: 2\n    - a: 3";
        let lines: Vec<&str> = text.lines().collect();
        for (path, line) in [
            ("scale.workers.min", Some(8)),
            ("scale.ps_shards.min", Some(5)),
            ("scale.workers", Some(6)),
            ("scale.workers.none", Some(6)),
            ("stop.target.value", Some(10)),
            ("stop.list[0].a", Some(12)),
            ("stop.list[0].b", Some(13)),
            ("stop.list[1].a", Some(14)),
            ("stop.list[1]", Some(14)),
            ("stop.list[1].b", Some(14)),
            ("stop.list[7].a", Some(11)),
            ("engine.batch", None),
        ] {
            assert_eq!(line_of(&lines, path), line, "{path}");
        }
    }
}
