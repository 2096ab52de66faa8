//! Inequalities between parameters: a small grammar of sums and products. A text is parsed once and
//! evaluated for every candidate.
//!
//! ```text
//! constraint = sum ("<=" | ">=" | "<" | ">") sum
//! sum        = product (("+" | "-") product)*
//! product    = factor (("*" | "/") factor)*
//! factor     = number | name | '"' name '"' | "(" sum ")" | "-" factor
//! ```

use super::{Dimension, Space};
use serde::{Deserialize, Serialize};

/// An inequality over inner values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Constraint {
    left: Sum,
    order: Order,
    right: Sum,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    Less,
    AtMost,
    More,
    AtLeast,
}

/// One side in postfix order. A list, because the tree of a long sum would be so deep that
/// recursion over it could exhaust the stack.
type Sum = Vec<Step>;

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
enum Step {
    Number(f64),
    /// The value of a dimension.
    Value(usize),
    Plus,
    Minus,
    Times,
    Over,
}

/// Maximum nesting of parentheses and signs, so that no text exhausts the stack.
const MAX_DEPTH: u32 = 32;

impl Constraint {
    /// Parses a constraint over these dimensions.
    ///
    /// # Errors
    /// The expected form, if the text is not a constraint.
    pub fn parse(text: &str, dimensions: &[Dimension]) -> Result<Self, String> {
        let mut reader = Reader {
            rest: text.trim_start(),
            dimensions,
            depth: 0,
            read: Sum::new(),
        };
        reader.sum()?;
        let left = std::mem::take(&mut reader.read);
        let order = reader.order()?;
        reader.sum()?;
        let right = std::mem::take(&mut reader.read);
        if !reader.rest.is_empty() {
            return Err(format!(
                "the end of the constraint before {:?}",
                reader.rest
            ));
        }
        Ok(Self { left, order, right })
    }

    /// Whether the constraint holds, or names a parameter that the point does not have.
    #[must_use]
    pub fn holds(&self, space: &Space, point: &[Option<f64>]) -> bool {
        let (Some(left), Some(right)) = (
            value(&self.left, space, point),
            value(&self.right, space, point),
        ) else {
            return true;
        };
        match self.order {
            Order::Less => left < right,
            Order::AtMost => left <= right,
            Order::More => left > right,
            Order::AtLeast => left >= right,
        }
    }
}

/// Returns `None` if the point lacks one of the parameters.
fn value(sum: &[Step], space: &Space, point: &[Option<f64>]) -> Option<f64> {
    let mut stack: Vec<f64> = Vec::with_capacity(8);
    for step in sum {
        let value = match step {
            Step::Number(number) => *number,
            Step::Value(d) => space.dimensions[*d].domain.number(point[*d]?)?,
            Step::Plus | Step::Minus | Step::Times | Step::Over => {
                let (right, left) = (stack.pop()?, stack.pop()?);
                match step {
                    Step::Plus => left + right,
                    Step::Minus => left - right,
                    Step::Times => left * right,
                    _ => left / right,
                }
            }
        };
        stack.push(value);
    }
    stack.pop()
}

struct Reader<'a> {
    rest: &'a str,
    dimensions: &'a [Dimension],
    depth: u32,
    read: Sum,
}

impl Reader<'_> {
    fn take(&mut self, sign: &str) -> bool {
        let Some(rest) = self.rest.strip_prefix(sign) else {
            return false;
        };
        self.rest = rest.trim_start();
        true
    }

    fn order(&mut self) -> Result<Order, String> {
        for (sign, order) in [
            ("<=", Order::AtMost),
            (">=", Order::AtLeast),
            ("<", Order::Less),
            (">", Order::More),
        ] {
            if self.take(sign) {
                return Ok(order);
            }
        }
        Err(format!("<=, >=, < or > before {:?}", self.rest))
    }

    fn sum(&mut self) -> Result<(), String> {
        self.product()?;
        loop {
            let operator = if self.take("+") {
                Step::Plus
            } else if self.take("-") {
                Step::Minus
            } else {
                return Ok(());
            };
            self.product()?;
            self.read.push(operator);
        }
    }

    fn product(&mut self) -> Result<(), String> {
        self.factor()?;
        loop {
            let operator = if self.take("*") {
                Step::Times
            } else if self.take("/") {
                Step::Over
            } else {
                return Ok(());
            };
            self.factor()?;
            self.read.push(operator);
        }
    }

    fn factor(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("at most {MAX_DEPTH} nested brackets and signs"));
        }
        if self.take("(") {
            self.sum()?;
            if !self.take(")") {
                return Err(format!("a closing bracket before {:?}", self.rest));
            }
        } else if self.take("-") {
            self.read.push(Step::Number(0.0));
            self.factor()?;
            self.read.push(Step::Minus);
        } else {
            let operand = self.atom()?;
            self.read.push(operand);
        }
        self.depth -= 1;
        Ok(())
    }

    fn atom(&mut self) -> Result<Step, String> {
        if self
            .rest
            .starts_with(|c: char| c.is_ascii_digit() || c == '.')
        {
            return self.number();
        }
        let (name, rest) = if let Some(quoted) = self.rest.strip_prefix('"') {
            quoted.split_once('"').ok_or("a closing quote")?
        } else {
            let end = self
                .rest
                .find(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '.' | '[' | ']'))
                .unwrap_or(self.rest.len());
            self.rest.split_at(end)
        };
        let found = self.dimensions.iter().position(|d| d.name == name);
        let Some(d) = found else {
            return Err(format!("a number or a parameter's name, not {name:?}"));
        };
        self.rest = rest.trim_start();
        Ok(Step::Value(d))
    }

    fn number(&mut self) -> Result<Step, String> {
        let bytes = self.rest.as_bytes();
        let mut end = 0;
        while end < bytes.len() {
            let sign = matches!(bytes[end], b'+' | b'-')
                && end > 0
                && matches!(bytes[end - 1], b'e' | b'E');
            if !(bytes[end].is_ascii_digit() || matches!(bytes[end], b'.' | b'e' | b'E') || sign) {
                break;
            }
            end += 1;
        }
        let (text, rest) = self.rest.split_at(end);
        let number = text.parse().ok().filter(|n: &f64| n.is_finite());
        let number = number.ok_or_else(|| format!("a number, not {text:?}"))?;
        self.rest = rest.trim_start();
        Ok(Step::Number(number))
    }
}
