//! Credentials of registries, in the format of `~/.docker/config.json`. Credential helpers are not
//! run.

use super::error::ImageError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use oci_client::secrets::RegistryAuth;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

#[derive(Debug, Default, Deserialize)]
struct DockerConfig {
    #[serde(default)]
    auths: BTreeMap<String, DockerAuth>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DockerAuth {
    /// User, a colon and password, in Base64.
    auth: Option<String>,
    username: Option<String>,
    password: Option<String>,
}

/// Returns the credentials of a registry in the file; anonymous without a file or without an entry
/// for the registry.
///
/// # Errors
/// If the file cannot be read or has another format.
pub(super) fn of_registry(file: Option<&Path>, registry: &str) -> Result<RegistryAuth, ImageError> {
    let Some(path) = file else {
        return Ok(RegistryAuth::Anonymous);
    };
    let wrong = |why: String| ImageError::Credentials {
        path: path.to_owned(),
        why,
    };
    let text = match std::fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(wrong("there is no such file".to_owned()));
        }
        read => read.map_err(|error| wrong(error.to_string()))?,
    };
    // The parser's message could quote a password.
    let config: DockerConfig = serde_json::from_str(&text)
        .map_err(|error| wrong(format!("line {} is no valid JSON", error.line())))?;
    let found = config
        .auths
        .iter()
        .find(|(name, _)| host(name) == host(registry));
    match found {
        None => Ok(RegistryAuth::Anonymous),
        Some((name, auth)) => auth
            .basic()
            .ok_or_else(|| wrong(format!("auths.{name} has no user and password"))),
    }
}

impl DockerAuth {
    fn basic(&self) -> Option<RegistryAuth> {
        if let Some(encoded) = self.auth.as_deref().filter(|encoded| !encoded.is_empty()) {
            let decoded = String::from_utf8(STANDARD.decode(encoded.trim()).ok()?).ok()?;
            let (user, password) = decoded.split_once(':')?;
            return Some(RegistryAuth::Basic(user.to_owned(), password.to_owned()));
        }
        let (user, password) = (self.username.clone()?, self.password.clone()?);
        Some(RegistryAuth::Basic(user, password))
    }
}

/// Host and port of a registry's name, which files write with or without scheme and path.
fn host(name: &str) -> &str {
    let name = name.strip_prefix("https://").unwrap_or(name);
    let name = name.strip_prefix("http://").unwrap_or(name);
    let host = name.split('/').next().unwrap_or(name);
    if host == "docker.io" {
        "index.docker.io"
    } else {
        host
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_found_by_the_registry_of_their_entry() {
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("config.json");
        let text = r#"{ "auths": {
            "https://index.docker.io/v1/": { "auth": "bWU6cGFzczp3b3Jk" },
            "r.io:5000": { "username": "a", "password": "b" },
            "broken.io": { "auth": "???" }
        }, "credsStore": "desktop" }"#;
        std::fs::write(&path, text).expect("written");
        let of = |registry| of_registry(Some(&path), registry);
        let basic =
            |user: &str, password: &str| RegistryAuth::Basic(user.to_owned(), password.to_owned());
        let hub = of("index.docker.io").expect("known");
        assert_eq!(hub, basic("me", "pass:word"));
        assert_eq!(of("r.io:5000").expect("known"), basic("a", "b"));
        assert_eq!(of("r.io").expect("none"), RegistryAuth::Anonymous);
        let error = of("broken.io").expect_err("no Base64").to_string();
        assert!(error.contains("auths.broken.io"), "{error}");
        std::fs::write(&path, r#"{ "auths": { "secret" "#).expect("written");
        let error = of("r.io").expect_err("no JSON").to_string();
        assert!(
            error.contains("image_auth_file") && !error.contains("secret"),
            "{error}"
        );
        assert_eq!(
            of_registry(None, "r.io").expect("none"),
            RegistryAuth::Anonymous
        );
    }
}
