//! Location of a cluster's checkpoints: a folder that all nodes share, or a bucket of an object
//! store.
//!
//! Credentials are never part of it: each daemon has its own in its environment.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Location as written in a daemon's settings: a path, `file:///path`, `s3://bucket/prefix`,
/// `gs://bucket/prefix` or `az://container/prefix`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Place {
    Folder(PathBuf),
    Bucket(BucketAddress),
}

/// Prefix in a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BucketAddress {
    pub service: Service,
    pub bucket: String,
    /// Without slashes at its ends; may be empty.
    pub prefix: String,
}

/// Protocol of the object store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    S3,
    Gcs,
    Azure,
}

/// Why a text is not a valid location.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    #[error(
        "it is empty; give a folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
    )]
    Empty,
    #[error(
        "{0}:// is not known; give a folder, file:///folder, s3://bucket/prefix, gs://bucket/prefix or az://container/prefix"
    )]
    Scheme(String),
    #[error("{0:?} is no path from the root; file:// is followed by one, as in file:///folder")]
    Relative(String),
    #[error("{0:?} names no bucket; give it as in s3://bucket/prefix")]
    Bucket(String),
    #[error(
        "an address must not hold credentials; they belong into the environment of each daemon"
    )]
    Credentials,
    #[error(
        "{0:?} must have letters, digits and -_./ only, and neither empty parts nor parts of dots"
    )]
    Prefix(String),
}

impl Place {
    /// Returns prefixes of the environment variables from which the service's own tools read
    /// credentials and endpoints.
    #[must_use]
    pub fn variables(&self) -> &'static [&'static str] {
        match self {
            Self::Folder(_) => &[],
            Self::Bucket(address) => match address.service {
                Service::S3 => &["AWS_"],
                Service::Gcs => &["GOOGLE_"],
                Service::Azure => &["AZURE_"],
            },
        }
    }
}

impl Service {
    #[must_use]
    pub fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::Gcs => "gs",
            Self::Azure => "az",
        }
    }
}

impl FromStr for Place {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let Some((scheme, rest)) = text.split_once("://") else {
            return match text {
                "" => Err(PlaceError::Empty),
                path => Ok(Self::Folder(path.into())),
            };
        };
        let service = match scheme {
            "file" if rest.starts_with('/') => return Ok(Self::Folder(rest.into())),
            "file" => return Err(PlaceError::Relative(rest.to_owned())),
            "s3" => Service::S3,
            "gs" => Service::Gcs,
            "az" => Service::Azure,
            other => return Err(PlaceError::Scheme(other.to_owned())),
        };
        if rest.contains('@') {
            return Err(PlaceError::Credentials);
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        if !is_plain(bucket) {
            return Err(PlaceError::Bucket(text.to_owned()));
        }
        if !prefix.is_empty() && !prefix.split('/').all(is_plain) {
            return Err(PlaceError::Prefix(prefix.to_owned()));
        }
        Ok(Self::Bucket(BucketAddress {
            service,
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
        }))
    }
}

/// Whether a part of an address needs no encoding and is not made of dots only.
fn is_plain(part: &str) -> bool {
    part.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && part.bytes().any(|byte| byte != b'.')
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}://{}", self.service.scheme(), self.bucket)?;
        match self.prefix.as_str() {
            "" => Ok(()),
            prefix => write!(out, "/{prefix}"),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(out),
            Self::Bucket(address) => address.fmt(out),
        }
    }
}

impl TryFrom<String> for Place {
    type Error = PlaceError;

    fn try_from(text: String) -> Result<Self, PlaceError> {
        text.parse()
    }
}

impl From<Place> for String {
    fn from(place: Place) -> Self {
        place.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(path: &str) -> Result<Place, PlaceError> {
        Ok(Place::Folder(path.into()))
    }

    #[test]
    fn place_is_parsed_as_folder_or_bucket() {
        assert_eq!("/srv/checkpoints".parse(), folder("/srv/checkpoints"));
        assert_eq!("checkpoints".parse(), folder("checkpoints"));
        assert_eq!("file:///srv/x".parse(), folder("/srv/x"));
        for text in [
            "s3://bucket",
            "gs://my.bucket/a/b",
            "az://container/muster_1",
        ] {
            let place: Place = text.parse().unwrap();
            assert!(matches!(place, Place::Bucket(_)), "{place:?}");
            assert_eq!(place.to_string(), text);
            assert_eq!(
                format!("{text}/").parse(),
                Ok(place),
                "a slash at the end means nothing"
            );
        }
    }

    fn refused(text: &str) -> PlaceError {
        text.parse::<Place>().expect_err(text)
    }

    #[test]
    fn invalid_place_is_refused_with_a_reason() {
        assert_eq!(refused(""), PlaceError::Empty);
        assert_eq!(
            refused("http://host/x"),
            PlaceError::Scheme("http".to_owned())
        );
        assert_eq!(
            refused("file://x/y"),
            PlaceError::Relative("x/y".to_owned())
        );
        assert_eq!(refused("s3:///x"), PlaceError::Bucket("s3:///x".to_owned()));
        assert_eq!(refused("s3://key:secret@bucket/x"), PlaceError::Credentials);
        for prefix in ["a//b", "../b", "a/..", "a b", "a?x=1"] {
            let expected = PlaceError::Prefix(prefix.to_owned());
            assert_eq!(refused(&format!("s3://bucket/{prefix}")), expected);
        }
    }
}
