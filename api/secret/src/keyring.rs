//! Keys: lines `ID:BASE64`, of which the first encrypts and all decrypt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::aead::{AES_256_GCM, LessSafeKey, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt;
use zeroize::Zeroizing;

const KEY_BYTES: usize = 32;
/// Maximum length of a key's id.
const MAX_ID: usize = 64;

/// Why keys are not available.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("neither secrets_key_file nor secrets_key_command is set")]
    NotConfigured,
    #[error("secrets_key_file and secrets_key_command are both set; expected one of the two")]
    TwoSources,
    #[error("cannot read the keys from {from}")]
    Read {
        from: String,
        #[source]
        source: std::io::Error,
    },
    #[error("the command {program} for the keys ended with {how}")]
    Command { program: String, how: String },
    #[error("the command {program} for the keys has printed no key within {limit_s} s")]
    Slow { program: String, limit_s: u64 },
    /// It never quotes the line.
    #[error(
        "line {line} of the keys is not ID:BASE64 with 32 bytes; `muster-api secrets new-key` prints such a line"
    )]
    Line { line: usize },
    #[error("line {line} of the keys repeats the id {id}")]
    Repeated { line: usize, id: String },
    #[error("there is no key; `muster-api secrets new-key` prints a line")]
    Empty,
    #[error("the system has no randomness to give")]
    Randomness,
}

/// Keys by id.
pub struct Keyring {
    keys: Vec<(String, LessSafeKey)>,
}

impl Keyring {
    /// Parses lines `ID:BASE64`. Empty lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    /// [`KeyError::Line`], [`KeyError::Repeated`] or [`KeyError::Empty`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys: Vec<(String, LessSafeKey)> = Vec::new();
        for (line, content) in (1..).zip(text.lines()) {
            let content = content.trim();
            if content.is_empty() || content.starts_with('#') {
                continue;
            }
            let (id, key) = parsed(content).ok_or(KeyError::Line { line })?;
            if keys.iter().any(|(known, _)| *known == id) {
                return Err(KeyError::Repeated { line, id });
            }
            keys.push((id, key));
        }
        if keys.is_empty() {
            return Err(KeyError::Empty);
        }
        Ok(Self { keys })
    }

    /// Returns the id of the key that encrypts.
    #[must_use]
    pub fn first_id(&self) -> &str {
        &self.keys[0].0
    }

    pub(crate) fn first(&self) -> &LessSafeKey {
        &self.keys[0].1
    }

    pub(crate) fn key(&self, id: &str) -> Option<&LessSafeKey> {
        let found = self.keys.iter().find(|(known, _)| known == id);
        found.map(|(_, key)| key)
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.keys.iter().map(|(id, _)| id))
            .finish()
    }
}

fn parsed(line: &str) -> Option<(String, LessSafeKey)> {
    let (id, key) = line.split_once(':')?;
    let is_id = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if !(1..=MAX_ID).contains(&id.len()) || !id.bytes().all(is_id) {
        return None;
    }
    let key = Zeroizing::new(STANDARD.decode(key.trim()).ok()?);
    // `new` refuses another length than 32 bytes.
    let key = UnboundKey::new(&AES_256_GCM, &key).ok()?;
    Some((id.to_owned(), LessSafeKey::new(key)))
}

/// Returns a line with a new random key.
///
/// # Errors
/// [`KeyError::Randomness`].
pub fn new_key(id: &str) -> Result<Zeroizing<String>, KeyError> {
    let mut key = Zeroizing::new([0; KEY_BYTES]);
    SystemRandom::new()
        .fill(key.as_mut())
        .map_err(|_| KeyError::Randomness)?;
    let encoded = Zeroizing::new(STANDARD.encode(key.as_ref()));
    Ok(Zeroizing::new(format!("{id}:{}", encoded.as_str())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_encrypts_and_comments_are_ignored() {
        let (new, old) = (new_key("b").expect("made"), new_key("a").expect("made"));
        let text = format!("# keys\n\n{}\n  {}  \n", new.as_str(), old.as_str());
        let keys = Keyring::parse(&text).expect("two keys");
        assert_eq!(keys.first_id(), "b");
        assert!(keys.key("a").is_some() && keys.key("c").is_none());
    }

    #[test]
    fn wrong_lines_are_refused_without_their_content() {
        let good = new_key("a").expect("made");
        let short = format!("a:{}", STANDARD.encode([7; 31]));
        for wrong in ["a", "a:", ":QUJD", "a b:QUJD", "a:not-base64", &short] {
            let error = Keyring::parse(&format!("{}\n{wrong}", good.replace("a:", "z:")));
            let error = error.expect_err("not a key");
            assert!(matches!(error, KeyError::Line { line: 2 }), "{wrong}");
            assert!(!error.to_string().contains("QUJD"));
        }
        let twice = format!("{}\n{}", good.as_str(), good.as_str());
        assert!(matches!(
            Keyring::parse(&twice),
            Err(KeyError::Repeated { line: 2, .. })
        ));
        assert!(matches!(Keyring::parse("# none\n"), Err(KeyError::Empty)));
    }

    #[test]
    fn keys_are_never_printed() {
        let line = new_key("a").expect("made");
        let keys = Keyring::parse(&line).expect("a key");
        assert_eq!(format!("{keys:?}"), "[\"a\"]");
    }
}
