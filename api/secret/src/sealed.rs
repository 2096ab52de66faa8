//! Authenticated encryption of values: AES-256-GCM with random 96-bit nonces.
//!
//! The associated data is the owner: tenant, name and version. A row that is copied to another
//! tenant, name or version does not decrypt. With random nonces one key may encrypt 2^32 values
//! (NIST SP 800-38D, section 8.3); a cluster has at most some millions.

use crate::keyring::{KeyError, Keyring};
use crate::value::SecretValue;
use muster_model::id::TenantId;
use ring::aead::{Aad, NONCE_LEN, Nonce};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Begins the associated data. Another format gets another text.
const FORMAT: &[u8] = b"muster secret 1\0";

/// The place of a value, which its ciphertext is bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner<'a> {
    pub tenant: TenantId,
    pub name: &'a str,
    pub version: u64,
}

/// An encrypted value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub key_id: String,
    pub nonce: Vec<u8>,
    /// With the authentication tag.
    pub ciphertext: Vec<u8>,
}

/// Why a value does not decrypt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    #[error("it is encrypted with the key {0:?}, which the scheduler does not have")]
    UnknownKey(String),
    #[error("its stored row is damaged or was changed")]
    Changed,
}

impl Owner<'_> {
    fn associated_data(&self) -> Vec<u8> {
        let tenant = self.tenant.0.into_bytes();
        let version = self.version.to_be_bytes();
        [FORMAT, &tenant, &version, self.name.as_bytes()].concat()
    }
}

impl Sealed {
    /// Encrypts a value with the first key.
    ///
    /// # Errors
    /// [`KeyError::Randomness`].
    pub fn seal(keys: &Keyring, owner: Owner<'_>, value: &SecretValue) -> Result<Self, KeyError> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new()
            .fill(&mut nonce)
            .map_err(|_| KeyError::Randomness)?;
        let mut bytes = value.expose().as_bytes().to_vec();
        // Encrypted in place, without a move of the cleartext.
        bytes.reserve_exact(ring::aead::MAX_TAG_LEN);
        let associated = Aad::from(owner.associated_data());
        let sealed = keys.first().seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            associated,
            &mut bytes,
        );
        sealed.expect("a value is far below the limit of AES-GCM");
        Ok(Self {
            key_id: keys.first_id().to_owned(),
            nonce: nonce.to_vec(),
            ciphertext: bytes,
        })
    }

    /// Decrypts the value of its owner.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(mut self, keys: &Keyring, owner: Owner<'_>) -> Result<SecretValue, OpenError> {
        let key = keys.key(&self.key_id);
        let key = key.ok_or_else(|| OpenError::UnknownKey(self.key_id.clone()))?;
        let nonce = Nonce::try_assume_unique_for_key(&self.nonce);
        let nonce = nonce.map_err(|_| OpenError::Changed)?;
        let associated = Aad::from(owner.associated_data());
        let opened = key.open_in_place(nonce, associated, &mut self.ciphertext);
        let length = opened.map_err(|_| OpenError::Changed)?.len();
        self.ciphertext.truncate(length);
        let text = String::from_utf8(self.ciphertext);
        text.map(SecretValue::from).map_err(|_| OpenError::Changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keyring::new_key;

    fn keys(id: &str) -> Keyring {
        Keyring::parse(&new_key(id).expect("made")).expect("a key")
    }

    fn owner(tenant: u8, name: &str, version: u64) -> Owner<'_> {
        let tenant = format!("01900000-0000-7000-8000-0000000000{tenant:02x}");
        Owner {
            tenant: tenant.parse().expect("a UUID"),
            name,
            version,
        }
    }

    #[test]
    fn value_decrypts_only_at_its_own_place() {
        let keys = keys("a");
        let value = SecretValue::from("hunter2".to_owned());
        let own = owner(1, "token", 3);
        let sealed = Sealed::seal(&keys, own, &value).expect("sealed");
        assert_eq!(sealed.clone().open(&keys, own), Ok(value));
        for other in [
            owner(2, "token", 3),
            owner(1, "token2", 3),
            owner(1, "token", 2),
        ] {
            assert_eq!(sealed.clone().open(&keys, other), Err(OpenError::Changed));
        }
    }

    #[test]
    fn changed_bytes_and_other_keys_are_refused() {
        let own = owner(1, "token", 1);
        let (first, other) = (keys("a"), keys("a"));
        let value = SecretValue::from("hunter2".to_owned());
        let sealed = Sealed::seal(&first, own, &value).expect("sealed");
        assert!(!sealed.ciphertext.windows(7).any(|part| part == b"hunter2"));
        assert_eq!(sealed.clone().open(&other, own), Err(OpenError::Changed));
        let unknown = sealed.clone().open(&keys("b"), own);
        assert_eq!(unknown, Err(OpenError::UnknownKey("a".to_owned())));
        for at in 0..sealed.ciphertext.len() {
            let mut changed = sealed.clone();
            changed.ciphertext[at] ^= 1;
            assert_eq!(changed.open(&first, own), Err(OpenError::Changed));
        }
        let mut changed = sealed.clone();
        changed.nonce.pop();
        assert_eq!(changed.open(&first, own), Err(OpenError::Changed));
        let again = Sealed::seal(&first, own, &value).expect("sealed");
        assert_ne!(again.nonce, sealed.nonce);
    }
}
