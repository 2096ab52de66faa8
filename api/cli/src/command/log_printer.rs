//! Lines of logs on stdout, with the name of their task and the time of their arrival.

use crate::output::Out;
use muster_model::text::log_time;
use muster_model::view::LogPiece;
use std::collections::BTreeMap;
use std::io::{self, Write as _};
use time::OffsetDateTime;

/// Prints output of one or several tasks.
#[derive(Debug)]
pub struct LogPrinter {
    /// Width of the names of tasks; `None`: output of one task, without its name.
    name_width: Option<usize>,
    has_times: bool,
    /// Beginnings of lines whose ends have not arrived, by task. Used only where lines are changed.
    partial: BTreeMap<String, String>,
}

impl LogPrinter {
    /// A printer for these tasks. With several tasks, each line begins with its task.
    #[must_use]
    pub fn new(tasks: &[String], has_times: bool) -> Self {
        let longest = tasks.iter().map(String::len).max().unwrap_or(0);
        Self {
            name_width: (tasks.len() > 1).then_some(longest),
            has_times,
            partial: BTreeMap::new(),
        }
    }

    /// Prints text that already has its times.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn text(&self, task: &str, text: &str) -> io::Result<()> {
        let mut out = Out;
        match self.name_width {
            None => out.write_all(text.as_bytes())?,
            Some(_) => {
                for line in text.lines() {
                    writeln!(out, "{}{}", self.name(task), shown(line))?;
                }
            }
        }
        out.flush()
    }

    /// Prints a piece of a followed log. Where lines are changed, only whole lines are printed.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn piece(&mut self, piece: &LogPiece) -> io::Result<()> {
        if self.name_width.is_none() && !self.has_times {
            return self.text(&piece.task, &piece.text);
        }
        let mut text = self.partial.remove(&piece.task).unwrap_or_default();
        text.push_str(&piece.text);
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.lines(&piece.task, &text[..whole], piece.received_at)?;
        if whole < text.len() {
            self.partial
                .insert(piece.task.clone(), text[whole..].to_owned());
        }
        Ok(())
    }

    /// Prints the unfinished line of a task whose output has ended.
    ///
    /// # Errors
    /// If stdout cannot be written.
    pub fn end(&mut self, task: &str) -> io::Result<()> {
        match self.partial.remove(task) {
            Some(rest) => self.lines(task, &rest, None),
            None => Ok(()),
        }
    }

    fn lines(&self, task: &str, text: &str, at: Option<OffsetDateTime>) -> io::Result<()> {
        let mut out = Out;
        let time = self.has_times.then(|| format!("{} ", log_time(at)));
        for line in text.lines() {
            let time = time.as_deref().unwrap_or_default();
            writeln!(out, "{}{time}{}", self.name(task), shown(line))?;
        }
        out.flush()
    }

    fn name(&self, task: &str) -> String {
        let width = self.name_width;
        width.map_or_else(String::new, |width| format!("{task:width$} | "))
    }
}

/// Returns what a terminal shows of a line at its end: a carriage return would overwrite the name.
fn shown(line: &str) -> &str {
    line.trim_end_matches('\r')
        .rsplit('\r')
        .next()
        .unwrap_or_default()
}

/// Returns the lines of several logs in the order of their times, each with the index of its log.
/// Each line begins with a time of equal format, as the server writes it.
#[must_use]
pub fn merge(logs: &[String]) -> Vec<(usize, &str)> {
    let mut lines = Vec::new();
    for (index, log) in logs.iter().enumerate() {
        lines.extend(log.lines().map(|line| (index, line)));
    }
    // Stable: lines of one log stay in their order.
    lines.sort_by_key(|(_, line)| line.split(' ').next().unwrap_or_default());
    lines
}

/// Returns the last lines of a text.
#[must_use]
pub fn last_lines(text: &str, count: usize) -> &str {
    let mut ends = text.trim_end_matches('\n').rmatch_indices('\n');
    match count.checked_sub(1).and_then(|skip| ends.nth(skip)) {
        Some((at, _)) => &text[at + 1..],
        None if count == 0 => "",
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::{last_lines, merge, shown};

    #[test]
    fn progress_bar_is_shown_as_it_was_last() {
        assert_eq!(shown("10 %\r90 %\r"), "90 %");
        assert_eq!(shown("plain"), "plain");
    }

    #[test]
    fn last_lines_of_a_text_are_found() {
        for (text, count, expected) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 1, "c"),
            ("a\n", 5, "a\n"),
            ("a\n", 0, ""),
            ("", 3, ""),
            ("a\n\n", 1, "a\n\n"),
        ] {
            assert_eq!(last_lines(text, count), expected, "{text:?} {count}");
        }
    }

    #[test]
    fn lines_of_several_tasks_are_ordered_by_time() {
        let logs = [
            "2026-01-01T00:00:01.000Z a\n2026-01-01T00:00:03.000Z b\n".to_owned(),
            "2026-01-01T00:00:02.000Z c\n2026-01-01T00:00:03.000Z d\n".to_owned(),
        ];
        let merged: Vec<_> = merge(&logs)
            .into_iter()
            .map(|(log, line)| format!("{log}{}", &line[line.len() - 1..]))
            .collect();
        assert_eq!(merged, ["0a", "1c", "0b", "1d"]);
    }
}
