//! The last output line of a task. Most failing programs print the reason there.

/// Number of kept bytes at the end of the output. Of a longer line only the end is kept.
const KEPT_BYTES: usize = 8 << 10;
/// Maximum length of the quoted line, in characters.
const TOLD: usize = 240;
const ESCAPE: char = '\u{1b}';

/// Collector of the last output line.
#[derive(Debug, Default)]
pub struct LastLine {
    end: Vec<u8>,
}

impl LastLine {
    /// Adds the next piece of the output.
    pub fn feed(&mut self, piece: &[u8]) {
        let piece = &piece[piece.len().saturating_sub(KEPT_BYTES)..];
        let too_many = (self.end.len() + piece.len()).saturating_sub(KEPT_BYTES);
        self.end.drain(..too_many);
        self.end.extend_from_slice(piece);
    }

    /// Returns the last line with a letter or digit, without control characters, cut to a
    /// sentence's length. `None` if there is none.
    #[must_use]
    pub fn told(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.end);
        // A carriage return ends a line too, as in progress bars.
        let lines = text.split(['\n', '\r']).map(plain);
        let mut lines = lines.filter(|line| line.chars().any(char::is_alphanumeric));
        lines.next_back().map(|line| cut(&line))
    }
}

/// Removes characters that move a terminal's cursor, change its colours or its text direction.
fn plain(line: &str) -> String {
    let mut plain = String::with_capacity(line.len());
    let mut rest = line.chars();
    while let Some(next) = rest.next() {
        match next {
            ESCAPE => skip_sequence(&mut rest),
            '\t' => plain.push(' '),
            '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {}
            _ if next.is_control() => {}
            _ => plain.push(next),
        }
    }
    plain.trim().to_owned()
}

/// Skips the rest of an escape sequence (ECMA-48): `[` to a final byte, `]` to a bell or another
/// escape, otherwise one character.
fn skip_sequence(rest: &mut std::str::Chars<'_>) {
    let end = match rest.next() {
        Some('[') => rest.find(|next| ('@'..='~').contains(next)),
        Some(']') => rest.find(|next| matches!(next, '\u{7}' | &ESCAPE)),
        _ => None,
    };
    // After an escape that ends such a text, one more character belongs to it.
    if end == Some(ESCAPE) {
        rest.next();
    }
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(TOLD) {
        None => line.to_owned(),
        Some((at, _)) => format!("{}…", line[..at].trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT_BYTES, LastLine, TOLD};

    fn told(pieces: &[&[u8]]) -> Option<String> {
        let mut last = LastLine::default();
        pieces.iter().for_each(|piece| last.feed(piece));
        last.told()
    }

    #[test]
    fn last_line_with_text_is_returned() {
        let traceback: [&[u8]; 2] = [
            b"Traceback (most recent call last):\n  File \"x.py\"\nModuleNot",
            b"FoundError: No module named 'muster'\n\n-----\n",
        ];
        let said = told(&traceback);
        assert_eq!(
            said.as_deref(),
            Some("ModuleNotFoundError: No module named 'muster'")
        );
        assert_eq!(told(&[b"\n ==== \n"]), None);
        assert_eq!(told(&[]), None);
    }

    #[test]
    fn last_line_contains_no_control_sequences() {
        let coloured = told(&[
            b"\x1b[1;31mError:\x1b[0m \x1b]0;title\x07out of\tluck\x08\x7f \xe2\x80\xaereversed\n",
        ]);
        assert_eq!(coloured.as_deref(), Some("Error: out of luck reversed"));
        assert_eq!(told(&[b"10 %\r90 %\r"]).as_deref(), Some("90 %"));
        assert_eq!(told(&[b"\xff7\xc3"]).as_deref(), Some("\u{fffd}7\u{fffd}"));
    }

    #[test]
    fn last_line_has_bounded_length() {
        let long = "é".repeat(KEPT_BYTES);
        let said = told(&[b"before\n", long.as_bytes(), b"end\n"]).expect("a line");
        assert_eq!(said.chars().count(), TOLD + 1);
        let many = "line\n".repeat(KEPT_BYTES);
        assert_eq!(told(&[many.as_bytes(), b"bye"]).as_deref(), Some("bye"));
    }
}
