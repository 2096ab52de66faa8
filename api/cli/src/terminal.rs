//! The terminal of standard output: its width, and output that is drawn again and again.

use crate::output::{Out, table_of};
use rustix::termios::tcgetwinsize;
use std::fmt;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

/// Time between two drawings.
pub const REDRAW: Duration = Duration::from_secs(2);
/// Enters the alternate screen and hides the cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves to the first cell. Text is overwritten instead of erased, so the screen does not flicker.
const HOME: &str = "\x1b[H";
const ERASE_TO_END_OF_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";
/// Minimum width to which the first column is cut.
const FIRST_MIN: usize = 12;
/// Spaces between two columns.
const GAP: usize = 2;

/// A column of a list that fits the terminal.
#[derive(Debug, Clone, Copy)]
pub struct Column {
    pub name: &'static str,
    /// Columns with the highest rank are left out first. Those with rank 0 always stay.
    pub rank: u8,
}

/// Columns and lines of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub columns: usize,
    pub lines: usize,
}

/// Size of a terminal that does not know its own, such as a serial console.
const UNKNOWN: Size = Size {
    columns: 80,
    lines: 24,
};

/// Returns the size of the terminal; `None` if standard output is a file or a pipe.
/// The environment variable `COLUMNS` replaces the width, and gives one to a file or a pipe.
#[must_use]
pub fn size() -> Option<Size> {
    let stdout = std::io::stdout();
    let real = stdout
        .is_terminal()
        .then(|| tcgetwinsize(&stdout).ok())
        .flatten()
        .filter(|size| size.ws_col > 0 && size.ws_row > 0)
        .map(|size| Size {
            columns: size.ws_col.into(),
            lines: size.ws_row.into(),
        });
    let columns = std::env::var("COLUMNS").ok();
    let columns = columns.and_then(|text| text.parse::<usize>().ok());
    match (columns.filter(|columns| *columns > 0), real) {
        (Some(columns), Some(real)) => Some(Size { columns, ..real }),
        (Some(columns), None) => Some(Size { columns, lines: 50 }),
        (None, real) => real,
    }
}

/// Returns a table that is at most `width` wide, if possible. Columns without values are left out
/// first, then those of the highest rank. At last the cells of the first column are cut.
#[must_use]
pub fn fitted(columns: &[Column], mut rows: Vec<Vec<String>>, width: usize) -> String {
    let mut kept: Vec<usize> = (0..columns.len()).collect();
    while total_width(columns, &rows, &kept) > width {
        let droppable = kept.iter().filter(|at| columns[**at].rank > 0);
        let first = droppable.max_by_key(|at| (is_empty(&rows, **at), columns[**at].rank));
        let Some(&first) = first else {
            break;
        };
        kept.retain(|at| *at != first);
    }
    let excess = total_width(columns, &rows, &kept).saturating_sub(width);
    if excess > 0 {
        let longest = cell_width(columns, &rows, 0);
        cut_first(&mut rows, longest.saturating_sub(excess).max(FIRST_MIN));
    }
    let header: Vec<&str> = kept.iter().map(|at| columns[*at].name).collect();
    let cells = rows.into_iter().map(|row| {
        let cells = kept.iter().map(|at| row[*at].clone());
        cells.collect()
    });
    table_of(&header, cells)
}

/// Whether no row has a value in the column.
fn is_empty(rows: &[Vec<String>], at: usize) -> bool {
    rows.iter().all(|row| matches!(row[at].as_str(), "-" | ""))
}

fn cell_width(columns: &[Column], rows: &[Vec<String>], at: usize) -> usize {
    let cells = rows.iter().map(|row| row[at].chars().count());
    cells.max().unwrap_or(0).max(columns[at].name.len())
}

fn total_width(columns: &[Column], rows: &[Vec<String>], kept: &[usize]) -> usize {
    let widths = kept.iter().map(|at| cell_width(columns, rows, *at));
    widths.sum::<usize>() + GAP * kept.len().saturating_sub(1)
}

fn cut_first(rows: &mut [Vec<String>], width: usize) {
    for row in rows {
        row[0] = cut(&row[0], width);
    }
}

/// Returns the text with at most this number of characters; a cut one ends with `…`.
#[must_use]
pub fn cut(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let start: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{start}…")
}

/// The alternate screen of the terminal; dropping it shows the former content again.
#[derive(Debug)]
pub struct Screen;

impl Screen {
    /// Enters the alternate screen. `None` if standard output is no terminal.
    #[must_use]
    pub fn enter() -> Option<Self> {
        std::io::stdout().is_terminal().then(|| {
            let _ = Out.write_all(ENTER.as_bytes());
            Self
        })
    }

    /// Replaces the content by a text, of which only what fits is shown.
    ///
    /// # Errors
    /// If the output cannot be written.
    pub fn draw(&self, text: &str, size: Size) -> std::io::Result<()> {
        let mut drawn = HOME.to_owned();
        for (number, line) in text.lines().take(size.lines).enumerate() {
            if number > 0 {
                drawn.push_str("\r\n");
            }
            drawn.push_str(&cut(line, size.columns));
            drawn.push_str(ERASE_TO_END_OF_LINE);
        }
        drawn.push_str(ERASE_BELOW);
        Out.write_all(drawn.as_bytes())?;
        Out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = Out.write_all(LEAVE.as_bytes()).and_then(|()| Out.flush());
    }
}

/// Draws the texts of `next` every [`REDRAW`] until Ctrl-C. If standard output is no terminal, the
/// first text is printed.
///
/// # Errors
/// The first error of `next`, or if the output cannot be written.
pub async fn redraw<F>(mut next: impl FnMut(Option<Size>) -> F) -> anyhow::Result<()>
where
    F: Future<Output = anyhow::Result<String>>,
{
    let Some(screen) = Screen::enter() else {
        let text = next(size()).await?;
        return crate::output::line(text.trim_end());
    };
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let size = size().unwrap_or(UNKNOWN);
        let text = tokio::select! {
            _ = &mut interrupted => return Ok(()),
            text = next(Some(size)) => text?,
        };
        screen.draw(&text, size)?;
        tokio::select! {
            _ = &mut interrupted => return Ok(()),
            () = tokio::time::sleep(REDRAW) => {}
        }
    }
}

/// A bar such as `████░░░░` of this number of characters.
#[must_use]
pub fn bar(part: u64, whole: u64, width: usize) -> impl fmt::Display {
    let filled = if whole == 0 {
        0
    } else {
        let share = part.min(whole) as f64 / whole as f64;
        (share * width as f64).round() as usize
    };
    format!("{}{}", "█".repeat(filled), "░".repeat(width - filled))
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLUMNS: [Column; 4] = [
        Column {
            name: "name",
            rank: 0,
        },
        Column {
            name: "loss",
            rank: 1,
        },
        Column {
            name: "ps",
            rank: 2,
        },
        Column {
            name: "id",
            rank: 0,
        },
    ];

    fn rows() -> Vec<Vec<String>> {
        let rows = [
            ["training-of-a-network", "-", "1/1", "1234abcd"],
            ["b", "-", "0/0", "1234abcd"],
        ];
        rows.map(|row| row.map(str::to_owned).to_vec()).to_vec()
    }

    /// Returns the names of the columns in a terminal of this width.
    fn names(width: usize) -> Vec<String> {
        let table = fitted(&COLUMNS, rows(), width);
        let header = table.lines().next().expect("a header");
        header.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn columns_are_left_out_until_the_table_fits() {
        assert_eq!(names(80), ["NAME", "LOSS", "PS", "ID"]);
        // A column without values is less important than one of a higher rank.
        assert_eq!(names(38), ["NAME", "PS", "ID"]);
        assert_eq!(names(32), ["NAME", "ID"]);
        let narrow = fitted(&COLUMNS, rows(), 25);
        assert!(
            narrow.lines().all(|line| line.chars().count() <= 25),
            "{narrow}"
        );
        assert!(narrow.contains("training-of-a-…  1234abcd"), "{narrow}");
        let too_narrow = fitted(&COLUMNS, rows(), 5);
        assert!(
            too_narrow.contains("training-of…  1234abcd"),
            "{too_narrow}"
        );
    }

    #[test]
    fn bar_is_filled_by_its_share() {
        assert_eq!(bar(1, 4, 8).to_string(), "██░░░░░░");
        assert_eq!(bar(9, 4, 2).to_string(), "██");
        assert_eq!(bar(0, 0, 2).to_string(), "░░");
    }
}
