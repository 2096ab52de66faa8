//! Query and path parameters. Unknown, repeated and malformed ones are refused, with what is
//! expected.

use crate::problem::{ApiError, ProblemKind};
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::Uri;
use axum::http::request::Parts;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use muster_document::NO_NUL;
use muster_model::spec::FieldError;
use muster_model::view::Page;
use muster_store::page::RowPage;
use std::str::FromStr;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Default number of items per page.
pub const PAGE_DEFAULT: u32 = 50;
/// Maximum number of items per page.
pub const PAGE_MAX: u32 = 500;

/// Refuses NUL in path and query, because the database cannot store it. The document reader checks
/// bodies.
pub async fn refuse_nul(request: Request, next: Next) -> Response {
    match with_nul(request.uri()) {
        Some((field, value)) => ApiError::parameter(&field, &value, NO_NUL).into_response(),
        None => next.run(request).await,
    }
}

/// Returns the first part with a NUL: name and value of a parameter, or `path` and the part of the
/// path as sent.
fn with_nul(uri: &Uri) -> Option<(String, String)> {
    if let Some(part) = uri.path().split('/').find(|part| has_nul(part)) {
        return Some(("path".to_owned(), format!("{part:?}")));
    }
    let query = uri.query().filter(|query| has_nul(query))?;
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let (name, value) = pairs.find(|pair| pair.0.contains('\0') || pair.1.contains('\0'))?;
    let name = name.escape_debug().to_string();
    Some((name, format!("{value:?}")))
}

/// Whether the part of a URI contains an escaped NUL.
fn has_nul(part: &str) -> bool {
    part.contains("%00")
}

/// Parameters of a handler.
pub trait FromQuery: Sized {
    /// Takes the known parameters from the query; the remaining ones are refused as unknown.
    fn take(query: &mut Query) -> Self;

    /// Names of all parameters, for errors about unknown ones.
    const NAMES: &'static [&'static str];
}

/// Extractor of parameters.
pub struct Params<T>(pub T);

/// A query string during its parsing; collects errors.
#[derive(Debug, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Query {
    /// Returns the value of a parameter that may be given once.
    pub fn one<T: FromStr>(&mut self, name: &str, expected: &str) -> Option<T> {
        let mut values = self.all(name);
        if values.len() > 1 {
            self.wrong(name, &format!("given {} times", values.len()), "one value");
            return None;
        }
        let value = values.pop()?;
        let parsed = value.parse().ok();
        if parsed.is_none() {
            self.wrong(name, &value, expected);
        }
        parsed
    }

    /// Returns a number between bounds.
    pub fn number(
        &mut self,
        name: &str,
        default: u64,
        bounds: std::ops::RangeInclusive<u64>,
    ) -> u64 {
        let expected = format!("a whole number from {} to {}", bounds.start(), bounds.end());
        let Some(value) = self.one::<u64>(name, &expected) else {
            return default;
        };
        if !bounds.contains(&value) {
            self.wrong(name, &value.to_string(), &expected);
        }
        value
    }

    /// Returns a step or an offset. The store has no unsigned numbers, which limits it.
    pub fn count(&mut self, name: &str) -> Option<u64> {
        let expected = format!("a whole number from 0 to {}", i64::MAX);
        let value = self.one::<u64>(name, &expected)?;
        if i64::try_from(value).is_err() {
            self.wrong(name, &value.to_string(), &expected);
        }
        Some(value)
    }

    /// Returns a time.
    pub fn time(&mut self, name: &str) -> Option<OffsetDateTime> {
        const EXPECTED: &str = "a time such as 2026-01-31T13:00:00Z";
        let text: String = self.one(name, EXPECTED)?;
        let parsed = OffsetDateTime::parse(&text, &Rfc3339);
        if parsed.is_err() {
            self.wrong(name, &text, EXPECTED);
        }
        parsed.ok()
    }

    /// Returns all values of a parameter that may be repeated.
    pub fn all(&mut self, name: &str) -> Vec<String> {
        let (taken, left) = std::mem::take(&mut self.pairs)
            .into_iter()
            .partition(|(key, _)| key == name);
        self.pairs = left;
        let taken: Vec<(String, String)> = taken;
        taken.into_iter().map(|(_, value)| value).collect()
    }

    pub fn wrong(&mut self, field: &str, value: &str, expected: &str) {
        self.errors.push(FieldError {
            field: field.to_owned(),
            value: value.to_owned(),
            expected: expected.to_owned(),
        });
    }

    /// Returns `limit` of a page.
    pub fn limit(&mut self) -> u32 {
        u32::try_from(self.number("limit", u64::from(PAGE_DEFAULT), 1..=u64::from(PAGE_MAX)))
            .unwrap_or(PAGE_DEFAULT)
    }

    /// Returns `continue` of a page.
    pub fn after<T: FromStr>(&mut self) -> Option<T> {
        self.one("continue", "the value of continue of the page before")
    }

    fn read<T: FromQuery>(text: &str) -> Result<T, ApiError> {
        let pairs = form_urlencoded::parse(text.as_bytes())
            .into_owned()
            .collect();
        let mut query = Self {
            pairs,
            errors: Vec::new(),
        };
        let read = T::take(&mut query);
        let known = if T::NAMES.is_empty() {
            "no parameter".to_owned()
        } else {
            format!("one of {}", T::NAMES.join(", "))
        };
        for (name, value) in std::mem::take(&mut query.pairs) {
            query.wrong(&name, &value, &known);
        }
        if query.errors.is_empty() {
            return Ok(read);
        }
        let detail = query
            .errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ");
        Err(ApiError::with_errors(
            ProblemKind::InvalidParameter,
            detail,
            query.errors,
        ))
    }
}

/// No parameters.
impl FromQuery for () {
    const NAMES: &'static [&'static str] = &[];

    fn take(_: &mut Query) {}
}

impl<S: Send + Sync, T: FromQuery> FromRequestParts<S> for Params<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Query::read(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Only `limit` and `continue`.
#[derive(Debug, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PageParams {
    /// Items per page.
    #[param(minimum = 1, maximum = 500, default = 50, required = false)]
    pub limit: u32,
    /// Value of `continue` of the last page.
    #[param(rename = "continue")]
    pub after: Option<String>,
}

impl FromQuery for PageParams {
    const NAMES: &'static [&'static str] = &["limit", "continue"];

    fn take(query: &mut Query) -> Self {
        Self {
            limit: query.limit(),
            after: query.after(),
        }
    }
}

/// Returns a page of `rows`. The query asked for one more than the limit, to detect further rows.
pub fn page<Row, Item>(
    mut rows: Vec<Row>,
    limit: u32,
    cursor: impl Fn(&Row) -> String,
    view: impl Fn(Row) -> Item,
) -> Page<Item> {
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    shown(RowPage { rows, more }, cursor, view)
}

/// Returns a page of rows that the store has cut by number or bytes.
pub fn shown<Row, Item>(
    page: RowPage<Row>,
    cursor: impl Fn(&Row) -> String,
    view: impl Fn(Row) -> Item,
) -> Page<Item> {
    let next = page.rows.last().filter(|_| page.more).map(cursor);
    Page {
        items: page.rows.into_iter().map(view).collect(),
        next,
    }
}

/// Extractor of the first path parameter as `T`. A value that cannot be parsed names no object.
pub struct PathParam<T>(pub T);

/// Type of a path parameter; `WHAT` precedes it in errors.
pub trait PathName: FromStr {
    const WHAT: &'static str;
}

impl PathName for muster_model::id::JobId {
    const WHAT: &'static str = "job";
}

impl PathName for muster_model::id::StudyId {
    const WHAT: &'static str = "study";
}

impl PathName for muster_model::id::TokenId {
    const WHAT: &'static str = "token";
}

impl<S: Send + Sync, T: PathName> FromRequestParts<S> for PathParam<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| ApiError::not_found(format!("{} of this name", T::WHAT)))?;
        let (_, text) = params.iter().next().expect("the route has a parameter");
        text.parse().map(Self).map_err(|_| {
            ApiError::not_found(format!("{} {text}; its name would be a UUID", T::WHAT))
        })
    }
}
