//! Tables in CSV files.

use super::error::DatasetError;
use super::examples::{ExampleTargets, Examples, LearningTask, gathered};
use super::scaling::{FeatureScaling, scale};
use super::split::DatasetRows;
use std::collections::BTreeSet;
use std::path::Path;

/// Table in memory, row-major.
pub(super) struct TableDataset {
    rows: usize,
    columns: usize,
    numbers: Vec<f32>,
    targets: ExampleTargets,
}

/// Reads a table with a header. Classes are numbered in the order of their names, or by value if
/// all names are whole numbers.
pub(super) fn read(
    path: &Path,
    target: &str,
    columns: usize,
    task: LearningTask,
) -> Result<TableDataset, DatasetError> {
    let mut reader = csv::ReaderBuilder::new()
        .trim(csv::Trim::All)
        .from_path(path)
        .map_err(DatasetError::unreadable(path))?;
    let header = reader
        .headers()
        .map_err(DatasetError::unreadable(path))?
        .clone();
    let at = header
        .iter()
        .position(|name| name == target)
        .ok_or_else(|| {
            let names: Vec<&str> = header.iter().collect();
            let problem = format!("no column {target:?}; it has {}", names.join(", "));
            DatasetError::content(path, problem)
        })?;
    DatasetError::promised(path, "columns beside the target", header.len() - 1, columns)?;
    let (mut numbers, mut answers) = (Vec::new(), Vec::new());
    for record in reader.records() {
        let record = record.map_err(DatasetError::unreadable(path))?;
        let line = record.position().map_or(0, csv::Position::line);
        for (column, field) in record.iter().enumerate() {
            if column == at {
                answers.push((line, field.to_owned()));
                continue;
            }
            numbers.push(number(path, line, &header[column], field)?);
        }
    }
    let rows = answers.len();
    let targets = match task {
        LearningTask::Classify { classes } => {
            ExampleTargets::Classes(classify(path, &answers, classes)?)
        }
        LearningTask::Regress { values } => {
            DatasetError::promised(path, "target columns", 1, values)?;
            let values = answers
                .iter()
                .map(|(line, field)| number(path, *line, target, field));
            ExampleTargets::Values(values.collect::<Result<_, _>>()?)
        }
    };
    Ok(TableDataset {
        rows,
        columns,
        numbers,
        targets,
    })
}

/// Parses the field `column` of a line.
fn number(path: &Path, line: u64, column: &str, field: &str) -> Result<f32, DatasetError> {
    match field.parse() {
        Ok(number) if f32::is_finite(number) => Ok(number),
        _ => Err(DatasetError::content(
            path,
            format!("line {line}: {column} is {field:?}; expected a finite number"),
        )),
    }
}

fn classify(
    path: &Path,
    answers: &[(u64, String)],
    classes: usize,
) -> Result<Vec<u32>, DatasetError> {
    let names: BTreeSet<&str> = answers.iter().map(|(_, name)| name.as_str()).collect();
    let mut names: Vec<&str> = names.into_iter().collect();
    if names.iter().all(|name| name.parse::<i64>().is_ok()) {
        names.sort_by_key(|name| name.parse::<i64>().unwrap_or(0));
    }
    DatasetError::promised(path, "classes", names.len(), classes)?;
    let numbers = answers.iter().map(|(_, name)| {
        let number = names.iter().position(|other| other == name);
        number.unwrap_or(0) as u32
    });
    Ok(numbers.collect())
}

impl DatasetRows for TableDataset {
    fn len(&self) -> usize {
        self.rows
    }

    fn split(
        self,
        train: &[u32],
        test: &[u32],
        scaling: &FeatureScaling,
    ) -> Result<(Examples, Examples), DatasetError> {
        let number =
            |index: u32, column: usize| self.numbers[index as usize * self.columns + column];
        let scales = scaling.of_columns(self.columns, |column| {
            train.iter().map(move |&index| number(index, column))
        });
        let [train, test] = [train, test].map(|indices| {
            let mut numbers = gathered(&self.numbers, indices, self.columns);
            if let Some(scales) = &scales {
                scale(&mut numbers, scales);
            }
            Examples::numbers(indices.len(), numbers, self.targets.at(indices, self.rows))
        });
        Ok((train, test))
    }
}
