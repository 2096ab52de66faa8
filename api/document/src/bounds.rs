//! Bounds of a YAML text, checked before anything is built from it.
//!
//! Without bounds, aliases could expand a short text to any size. In addition, the parser's time is
//! quadratic in some quantities that no document needs to be large. A bound that limits the
//! parser's time says why.

use crate::events::{YamlEvent, YamlEventParser};
use std::collections::BTreeMap;

/// Maximum depth of lists and objects. For each token the parser visits every open flow collection.
pub const MAX_DEPTH: usize = 64;

/// Maximum number of values and keys, including those for which aliases stand.
pub const MAX_NODES: usize = 100_000;

/// Maximum length of all texts and tags, including those for which aliases stand: four times the
/// default maximum of a request's body.
pub const MAX_EXPANDED_BYTES: usize = 4 << 20;

/// Maximum number of consecutive blanks and line breaks. Within a scalar the parser clears a buffer
/// of the longest such run at every word.
pub const MAX_BLANKS: usize = 4096;

/// Maximum number of lines that begin with `%`. The parser compares each directive with every other
/// one.
pub const MAX_DIRECTIVES: usize = 16;

/// Bound that a text exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Excess {
    #[error(
        "line {line} is nested too deep; expected at most {MAX_DEPTH} levels of lists and objects"
    )]
    Depth { line: usize },
    #[error(
        "there are too many values at line {line}; expected at most {MAX_NODES}, with those that aliases stand for"
    )]
    Nodes { line: usize },
    #[error(
        "the texts are too long at line {line}; expected at most {MAX_EXPANDED_BYTES} bytes, with those that aliases stand for"
    )]
    Bytes { line: usize },
    #[error(
        "the alias at line {line} stands for a value that contains it; expected a value that has ended"
    )]
    Recursion { line: usize },
    #[error("the anchor at line {line} is defined twice; expected a name of its own")]
    Anchor { line: usize },
    #[error("a second document begins at line {line}; expected one")]
    Documents { line: usize },
    #[error(
        "more than {MAX_BLANKS} blanks and line breaks follow each other at line {line}; expected fewer"
    )]
    Blanks { line: usize },
    #[error("line {line} begins with %, as do {MAX_DIRECTIVES} before it; expected no directives")]
    Directives { line: usize },
}

/// Expanded size of a value.
#[derive(Debug, Clone, Copy, Default)]
struct ExpandedSize {
    nodes: usize,
    bytes: usize,
    /// Levels of lists and objects.
    depth: usize,
}

/// A list or object that has not ended.
struct OpenContainer {
    anchor: Option<Vec<u8>>,
    size: ExpandedSize,
}

/// Checks all bounds.
///
/// # Errors
/// [`Excess`]. Invalid YAML passes if its beginning does, because the parser reads no further.
pub fn check(text: &str) -> Result<(), Excess> {
    check_lines(text)?;
    ExpansionCounter::default().run(YamlEventParser::new(text))
}

/// Checks the bounds of blanks and directives, which the parser's events do not contain.
fn check_lines(text: &str) -> Result<(), Excess> {
    let (mut blanks, mut directives, mut line) = (0, 0, 1);
    let mut is_line_start = true;
    for next in text.chars() {
        // Characters that the parser takes for line breaks.
        let is_break = matches!(next, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}');
        if is_line_start && next == '%' {
            directives += 1;
            if directives > MAX_DIRECTIVES {
                return Err(Excess::Directives { line });
            }
        }
        blanks = if is_break || next == ' ' || next == '\t' {
            blanks + 1
        } else {
            0
        };
        if blanks > MAX_BLANKS {
            return Err(Excess::Blanks { line });
        }
        line += usize::from(next == '\n');
        is_line_start = is_break;
    }
    Ok(())
}

/// Sums the expanded sizes of the values of a text, and compares the sums with the bounds.
#[derive(Default)]
pub struct ExpansionCounter {
    /// Containers around the current value, from the outermost.
    open: Vec<OpenContainer>,
    /// Values that have ended, by their anchors.
    anchored: BTreeMap<Vec<u8>, ExpandedSize>,
    nodes: usize,
    bytes: usize,
    documents: usize,
    /// Number of events read.
    pub events: usize,
}

impl ExpansionCounter {
    /// Reads events until their end or the first excess.
    pub fn run(&mut self, mut events: YamlEventParser) -> Result<(), Excess> {
        while let Some((event, line)) = events.next() {
            self.events += 1;
            self.add_event(event, line)?;
        }
        Ok(())
    }

    fn add_event(&mut self, event: YamlEvent, line: usize) -> Result<(), Excess> {
        match event {
            YamlEvent::DocumentStart => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(Excess::Documents { line });
                }
            }
            YamlEvent::Node {
                anchor,
                bytes,
                is_container,
            } => {
                if anchor.as_ref().is_some_and(|name| self.is_known(name)) {
                    return Err(Excess::Anchor { line });
                }
                let size = ExpandedSize {
                    nodes: 1,
                    bytes,
                    depth: 0,
                };
                self.count(size, line)?;
                if is_container {
                    self.open.push(OpenContainer { anchor, size });
                    if self.open.len() > MAX_DEPTH {
                        return Err(Excess::Depth { line });
                    }
                } else {
                    self.complete(anchor, size);
                }
            }
            YamlEvent::End => {
                let OpenContainer { anchor, mut size } =
                    self.open.pop().expect("ends follow starts");
                size.depth += 1;
                self.complete(anchor, size);
            }
            YamlEvent::Alias(name) => {
                if self.is_open(&name) {
                    return Err(Excess::Recursion { line });
                }
                // The reader refuses an alias without an anchor.
                let size = self.anchored.get(&name).copied().unwrap_or_default();
                self.count(size, line)?;
                if self.open.len() + size.depth > MAX_DEPTH {
                    return Err(Excess::Depth { line });
                }
                self.complete(None, size);
            }
            YamlEvent::Other => {}
        }
        Ok(())
    }

    /// Whether the anchor is known: its container is complete or still open.
    fn is_known(&self, anchor: &[u8]) -> bool {
        self.anchored.contains_key(anchor) || self.is_open(anchor)
    }

    /// Whether a container with this anchor has not ended.
    fn is_open(&self, anchor: &[u8]) -> bool {
        let mut open = self.open.iter();
        open.any(|open| open.anchor.as_deref() == Some(anchor))
    }

    /// Adds a value, or what an alias stands for, to the sums.
    fn count(&mut self, size: ExpandedSize, line: usize) -> Result<(), Excess> {
        self.nodes += size.nodes;
        self.bytes += size.bytes;
        if self.nodes > MAX_NODES {
            return Err(Excess::Nodes { line });
        }
        if self.bytes > MAX_EXPANDED_BYTES {
            return Err(Excess::Bytes { line });
        }
        Ok(())
    }

    /// Adds a complete value to the container around it, and registers its anchor.
    fn complete(&mut self, anchor: Option<Vec<u8>>, size: ExpandedSize) {
        if let Some(anchor) = anchor {
            self.anchored.insert(anchor, size);
        }
        if let Some(around) = self.open.last_mut() {
            around.size.nodes += size.nodes;
            around.size.bytes += size.bytes;
            around.size.depth = around.size.depth.max(size.depth);
        }
    }
}
