//! Output of results: a table for people, JSON or YAML for programs. Programs receive the complete
//! answer of the server.

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;
use std::fmt;
use std::io::{self, Write};
use std::pin::Pin;
use std::task::{self, Poll};
use time::OffsetDateTime;
use tokio::io::AsyncWrite;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum OutputFormat {
    #[default]
    Table,
    Json,
    Yaml,
}

impl OutputFormat {
    /// Whether the output is for programs and therefore complete.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self != Self::Table
    }

    /// Prints `value` as JSON or YAML, or the result of `table`.
    ///
    /// # Errors
    /// If it cannot be encoded or written.
    pub fn print<T: Serialize>(
        self,
        value: &T,
        table: impl FnOnce(&T) -> String,
    ) -> anyhow::Result<()> {
        let text = match self {
            Self::Table => table(value),
            Self::Json => serde_json::to_string_pretty(value)?,
            Self::Yaml => serde_norway::to_string(value)?,
        };
        line(text.trim_end())
    }
}

/// Standard output of every command. A closed pipe (`muster list | head -1`) ends the program with
/// exit code 0.
#[derive(Debug)]
pub struct Out;

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        or_end(io::stdout().lock().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        or_end(io::stdout().lock().flush())
    }
}

/// Blocking writes: the command does nothing else meanwhile.
impl AsyncWrite for Out {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut task::Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(self.write(bytes))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut task::Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.flush())
    }

    fn poll_shutdown(
        self: Pin<&mut Self>,
        context: &mut task::Context<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

fn or_end<T>(done: io::Result<T>) -> io::Result<T> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other,
    }
}

/// Prints a line.
///
/// # Errors
/// If the output cannot be written.
pub fn line(text: &str) -> anyhow::Result<()> {
    Ok(writeln!(Out, "{text}")?)
}

/// Writes a line to stderr and ignores errors.
pub fn note(text: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Writes a question to stderr. The user types the answer on the same line.
pub fn prompt(text: &str) {
    let mut out = io::stderr().lock();
    let _ = write!(out, "{text}").and_then(|()| out.flush());
}

/// Returns a plain table without lines between cells, like `kubectl get`.
#[must_use]
pub fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    table_of(&header, rows.into_iter().map(Vec::from))
}

/// Does the same as [`table`] for a number of columns known only at run time.
#[must_use]
pub fn table_of(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns `name: value` lines with aligned values.
#[must_use]
pub fn fields(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 1;
    let lines = rows
        .iter()
        .map(|(name, value)| format!("{:<width$}  {value}", format!("{name}:")));
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the time since `at` in a suitable unit: `42s`, `7m`, `3h`, `12d`.
#[must_use]
pub fn age(at: OffsetDateTime, now: OffsetDateTime) -> String {
    duration_s((now - at).as_seconds_f64())
}

/// Returns a duration in a suitable unit.
#[must_use]
pub fn duration_s(seconds: f64) -> String {
    let s = seconds.max(0.0);
    if s < 120.0 {
        format!("{s:.0}s")
    } else if s < 7_200.0 {
        format!("{:.0}m", s / 60.0)
    } else if s < 172_800.0 {
        format!("{:.0}h", s / 3_600.0)
    } else {
        format!("{:.0}d", s / 86_400.0)
    }
}

/// Returns `1 job` or `2 jobs`, for words with a plural in s.
#[must_use]
pub fn counted(number: u32, what: &str) -> String {
    match number {
        1 => format!("1 {what}"),
        _ => format!("{number} {what}s"),
    }
}

/// Returns a number of bytes in binary units.
#[must_use]
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    #[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{bytes} B")
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::{age, bytes, duration_s, fields, table};
    use time::macros::datetime;

    #[test]
    fn durations_and_sizes_use_suitable_units() {
        assert_eq!(duration_s(0.4), "0s");
        assert_eq!(duration_s(119.0), "119s");
        assert_eq!(duration_s(120.0), "2m");
        assert_eq!(duration_s(90_000.0), "25h");
        assert_eq!(duration_s(-5.0), "0s");
        assert_eq!(
            age(
                datetime!(2026-01-01 0:00 UTC),
                datetime!(2026-01-04 0:00 UTC)
            ),
            "3d"
        );
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(3 << 20), "3.0 MiB");
    }

    #[test]
    fn columns_are_aligned_and_lines_are_trimmed() {
        let text = table(
            ["name", "n"],
            [["a".into(), "1".into()], ["longer".into(), "22".into()]],
        );
        assert_eq!(text, "NAME    N\na       1\nlonger  22");
        assert_eq!(
            fields(&[("a", "1".into()), ("bcd", "2".into())]),
            "a:    1\nbcd:  2"
        );
    }
}
