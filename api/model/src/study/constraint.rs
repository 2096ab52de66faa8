//! Inequalities between parameters: a small grammar of sums and products, read once and evaluated for every candidate.
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
    left: Term,
    order: Order,
    right: Term,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Order {
    Less,
    AtMost,
    More,
    AtLeast,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Term {
    Number(f64),
    /// The value of a dimension.
    Value(usize),
    Operation(Operator, Box<Term>, Box<Term>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Operator {
    Plus,
    Minus,
    Times,
    Over,
}

/// Nested deeper than this nothing is read, so that no text can exhaust the stack.
const MAX_DEPTH: u32 = 32;

impl Constraint {
    /// # Errors
    /// What would be right, for a text that is no constraint over these dimensions.
    pub fn parse(text: &str, dimensions: &[Dimension]) -> Result<Self, String> {
        let mut reader = Reader {
            rest: text.trim_start(),
            dimensions,
            depth: 0,
        };
        let left = reader.sum()?;
        let order = reader.order()?;
        let right = reader.sum()?;
        if !reader.rest.is_empty() {
            return Err(format!(
                "the end of the constraint before {:?}",
                reader.rest
            ));
        }
        Ok(Self { left, order, right })
    }

    /// Whether it holds, or names something that the point does not have.
    #[must_use]
    pub fn holds(&self, space: &Space, point: &[Option<f64>]) -> bool {
        let (Some(left), Some(right)) = (
            self.left.value(space, point),
            self.right.value(space, point),
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

impl Term {
    fn value(&self, space: &Space, point: &[Option<f64>]) -> Option<f64> {
        match self {
            Self::Number(number) => Some(*number),
            Self::Value(d) => space.dimensions[*d].domain.number(point[*d]?),
            Self::Operation(operator, left, right) => {
                let (left, right) = (left.value(space, point)?, right.value(space, point)?);
                Some(match operator {
                    Operator::Plus => left + right,
                    Operator::Minus => left - right,
                    Operator::Times => left * right,
                    Operator::Over => left / right,
                })
            }
        }
    }
}

struct Reader<'a> {
    rest: &'a str,
    dimensions: &'a [Dimension],
    depth: u32,
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

    fn sum(&mut self) -> Result<Term, String> {
        let mut left = self.product()?;
        loop {
            let operator = if self.take("+") {
                Operator::Plus
            } else if self.take("-") {
                Operator::Minus
            } else {
                return Ok(left);
            };
            left = Term::Operation(operator, Box::new(left), Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Term, String> {
        let mut left = self.factor()?;
        loop {
            let operator = if self.take("*") {
                Operator::Times
            } else if self.take("/") {
                Operator::Over
            } else {
                return Ok(left);
            };
            left = Term::Operation(operator, Box::new(left), Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Term, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("at most {MAX_DEPTH} nested brackets and signs"));
        }
        let term = if self.take("(") {
            let inner = self.sum()?;
            if !self.take(")") {
                return Err(format!("a closing bracket before {:?}", self.rest));
            }
            inner
        } else if self.take("-") {
            let zero = Box::new(Term::Number(0.0));
            Term::Operation(Operator::Minus, zero, Box::new(self.factor()?))
        } else {
            self.atom()?
        };
        self.depth -= 1;
        Ok(term)
    }

    fn atom(&mut self) -> Result<Term, String> {
        if self
            .rest
            .starts_with(|c: char| c.is_ascii_digit() || c == '.')
        {
            return self.number();
        }
        let (name, rest) = if let Some(quoted) = self.rest.strip_prefix('"') {
            quoted.split_once('"').ok_or("a closing quote")?
        } else {
            let inside = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '[' | ']');
            let end = self.rest.find(|c| !inside(c)).unwrap_or(self.rest.len());
            self.rest.split_at(end)
        };
        let found = self.dimensions.iter().position(|d| d.name == name);
        let Some(d) = found else {
            return Err(format!("a number or a parameter's name, not {name:?}"));
        };
        self.rest = rest.trim_start();
        Ok(Term::Value(d))
    }

    fn number(&mut self) -> Result<Term, String> {
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
        let number = text
            .parse()
            .map_err(|_| format!("a number, not {text:?}"))?;
        self.rest = rest.trim_start();
        Ok(Term::Number(number))
    }
}
