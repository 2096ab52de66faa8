//! Strict reader of CSV files with a header.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

/// Reason and place of an error in a trace.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {problem}")]
pub struct TraceError {
    pub file: String,
    /// The first line is 1.
    pub line: u64,
    pub problem: TraceProblem,
}

impl TraceError {
    fn at(file: &str, line: u64, problem: TraceProblem) -> Self {
        Self {
            file: file.to_owned(),
            line,
            problem,
        }
    }

    fn syntax(file: &str, error: &csv::Error) -> Self {
        let line = error.position().map_or(1, csv::Position::line);
        let what = error.to_string();
        Self::at(file, line, TraceProblem::Syntax { what })
    }
}

/// Error in a line, with the expected value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceProblem {
    /// Invalid CSV.
    Syntax { what: String },
    /// The header has an unknown or a duplicate column.
    Column { column: String, expected: String },
    /// The header lacks a required column.
    Missing { column: String, expected: String },
    /// The row is shorter or longer than the header.
    Width { found: usize, expected: usize },
    /// The value is not valid for its column.
    Value {
        column: String,
        value: String,
        expected: String,
    },
    /// The file has a header and no job.
    Empty,
}

/// Columns of a kind of file.
#[derive(Debug)]
pub struct Schema {
    pub name: &'static str,
    pub required: &'static [&'static str],
    pub optional: &'static [&'static str],
}

/// Rows of text, all as long as the header.
#[derive(Debug)]
pub struct TraceTable {
    file: String,
    header: Vec<String>,
    /// Line number and fields.
    rows: Vec<(u64, csv::StringRecord)>,
}

/// One row of a table.
#[derive(Debug, Clone, Copy)]
pub struct TraceRow<'t> {
    table: &'t TraceTable,
    line: u64,
    fields: &'t csv::StringRecord,
}

impl TraceTable {
    /// Parses a CSV text.
    ///
    /// # Errors
    /// [`TraceError`] if the text is not CSV, a row differs in length from the header, or there is
    /// no row.
    pub fn parse(file: &str, text: &str) -> Result<Self, TraceError> {
        let mut reader = csv::ReaderBuilder::new()
            .flexible(true)
            .trim(csv::Trim::All)
            .from_reader(text.as_bytes());
        let header = reader
            .headers()
            .map_err(|error| TraceError::syntax(file, &error))?
            .clone();
        let mut rows = Vec::new();
        for record in reader.records() {
            let fields = record.map_err(|error| TraceError::syntax(file, &error))?;
            let line = fields.position().map_or(0, csv::Position::line);
            if fields.len() != header.len() {
                let (found, expected) = (fields.len(), header.len());
                let problem = TraceProblem::Width { found, expected };
                return Err(TraceError::at(file, line, problem));
            }
            rows.push((line, fields));
        }
        if rows.is_empty() {
            return Err(TraceError::at(file, 1, TraceProblem::Empty));
        }
        Ok(Self {
            file: file.to_owned(),
            header: header.iter().map(str::to_owned).collect(),
            rows,
        })
    }

    /// Returns the index of the header's schema: the schema that shares most columns must fit
    /// exactly.
    pub fn schema(&self, schemas: &[&Schema]) -> Result<usize, TraceError> {
        // The first of equal schemas; `max_by_key` alone would return the last.
        let nearest = (0..schemas.len())
            .rev()
            .max_by_key(|&n| self.shared(schemas[n]));
        let Some(index) = nearest else {
            unreachable!("a reader knows at least one schema");
        };
        let schema = schemas[index];
        let expected = match self.shared(schema) {
            0 => schemas.iter().map(|schema| schema.to_string()).collect(),
            _ => vec![schema.to_string()],
        }
        .join(", or ");
        for (index, column) in self.header.iter().enumerate() {
            let known = schema.required.iter().chain(schema.optional);
            if !known.into_iter().any(|name| name == column)
                || self.header[..index].contains(column)
            {
                let column = column.clone();
                let problem = TraceProblem::Column { column, expected };
                return Err(TraceError::at(&self.file, 1, problem));
            }
        }
        match schema.required.iter().find(|column| !self.has(column)) {
            Some(&column) => {
                let column = column.to_owned();
                let problem = TraceProblem::Missing { column, expected };
                Err(TraceError::at(&self.file, 1, problem))
            }
            None => Ok(index),
        }
    }

    fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// Number of the schema's required columns in the header.
    fn shared(&self, schema: &Schema) -> usize {
        let required = schema.required.iter();
        required.filter(|column| self.has(column)).count()
    }

    pub fn rows(&self) -> impl Iterator<Item = TraceRow<'_>> {
        self.rows.iter().map(|&(line, ref fields)| TraceRow {
            table: self,
            line,
            fields,
        })
    }

    /// Refuses a second row with the same value in the column.
    pub fn unique(&self, column: &str) -> Result<(), TraceError> {
        let mut first = BTreeMap::new();
        for row in self.rows() {
            let value = row.text(column)?;
            if let Some(line) = first.insert(value, row.line) {
                let expected = format!("each name once; line {line} has it already");
                return Err(row.wrong(column, expected));
            }
        }
        Ok(())
    }
}

impl<'t> TraceRow<'t> {
    /// Returns the field; `None` if it is empty or the file has no such column.
    pub fn get(&self, column: &str) -> Option<&'t str> {
        let index = self.table.header.iter().position(|name| name == column)?;
        self.fields.get(index).filter(|value| !value.is_empty())
    }

    pub fn text(&self, column: &str) -> Result<&'t str, TraceError> {
        self.get(column)
            .ok_or_else(|| self.wrong(column, "expected a text that is not empty"))
    }

    /// Returns a whole number in a range.
    pub fn whole(&self, column: &str, range: RangeInclusive<u32>) -> Result<u32, TraceError> {
        self.get(column)
            .and_then(|value| value.parse().ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (from, to) = range.clone().into_inner();
                self.wrong(column, format!("expected a whole number, {from} to {to}"))
            })
    }

    /// Returns a finite decimal number of at least 0.
    pub fn decimal(&self, column: &str) -> Result<f64, TraceError> {
        self.get(column)
            .and_then(|value| value.parse::<f64>().ok())
            .filter(|number| number.is_finite() && *number >= 0.0)
            .ok_or_else(|| self.wrong(column, "expected a decimal number of at least 0"))
    }

    pub fn wrong(&self, column: &str, expected: impl Into<String>) -> TraceError {
        TraceError {
            file: self.table.file.clone(),
            line: self.line,
            problem: TraceProblem::Value {
                column: column.to_owned(),
                value: self.get(column).unwrap_or_default().to_owned(),
                expected: expected.into(),
            },
        }
    }
}

impl fmt::Display for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.required.join(","))?;
        if !self.optional.is_empty() {
            write!(f, "[,{}]", self.optional.join(","))?;
        }
        Ok(())
    }
}

impl fmt::Display for TraceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Syntax { what } => write!(f, "{what}"),
            Self::Column { column, expected } => write!(
                f,
                "column {column:?} is not known, or there twice; expected {expected}"
            ),
            Self::Missing { column, expected } => {
                write!(f, "column {column:?} is missing; expected {expected}")
            }
            Self::Width { found, expected } => {
                write!(f, "the row has {found} fields; the header has {expected}")
            }
            Self::Value {
                column,
                value,
                expected,
            } => write!(f, "column {column} is {value:?}; {expected}"),
            Self::Empty => write!(f, "there is no row; expected at least one job"),
        }
    }
}
