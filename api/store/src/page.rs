//! Pages bounded by rows and by bytes, so that no list exhausts the memory of its reader.

use crate::error::StoreError;
use futures::{Stream, TryStreamExt as _};
use std::ops::Deref;

/// Length of JSON after which a page ends, in bytes. The row that exceeds it is the last one.
pub const PAGE_BYTES: usize = 4 << 20;

/// Rows of a list.
#[derive(Debug, Clone, PartialEq)]
pub struct RowPage<T> {
    pub rows: Vec<T>,
    /// Whether more rows follow.
    pub more: bool,
}

impl<T> Deref for RowPage<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.rows
    }
}

impl<T> IntoIterator for RowPage<T> {
    type Item = T;
    type IntoIter = std::vec::IntoIter<T>;

    fn into_iter(self) -> Self::IntoIter {
        self.rows.into_iter()
    }
}

impl<T: PartialEq, const N: usize> PartialEq<[T; N]> for RowPage<T> {
    fn eq(&self, other: &[T; N]) -> bool {
        self.rows == other
    }
}

/// Reads a page of a query with the limit `limit + 1`. Further rows are not kept in memory.
pub(crate) async fn read<Row, T: From<Row>>(
    rows: impl Stream<Item = Result<Row, sqlx::Error>> + Unpin,
    limit: u32,
    bytes: impl Fn(&T) -> usize,
) -> Result<RowPage<T>, StoreError> {
    let mut found = rows;
    let mut page = RowPage {
        rows: Vec::new(),
        more: false,
    };
    let mut taken = 0;
    while let Some(row) = found.try_next().await? {
        if page.rows.len() >= limit as usize || taken >= PAGE_BYTES {
            page.more = true;
            break;
        }
        let row = T::from(row);
        taken += bytes(&row);
        page.rows.push(row);
    }
    Ok(page)
}

/// Returns the length of a value as JSON, in bytes.
pub(crate) fn json_bytes<T: serde::Serialize>(value: &T) -> usize {
    serde_json::to_vec(value).expect("it is JSON").len()
}
