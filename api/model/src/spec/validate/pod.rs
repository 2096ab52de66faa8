//! Rules of a job's pods that need no cluster: names that no Kubernetes object can have, and
//! overlapping paths.

use super::Errors;
use crate::spec::{Command, Pod, Volume};

const MOST_PULL_SECRETS: usize = 16;
const MOST_VARIABLES: usize = 64;
const MOST_VOLUMES: usize = 32;
const MOST_OF_AN_IMAGE: usize = 512;
const MOST_OF_A_NAME: usize = 253;
const MOST_OF_A_PATH: usize = 1024;
/// Larger than any disk, and within the range of Kubernetes' quantities.
const MOST_BYTES: u64 = 1 << 50;
const NAME: &str = "1 to 253 of a-z, 0-9, '-' and '.', beginning and ending with a letter or digit";

impl Pod {
    pub(super) fn check(&self, errors: &mut Errors, has_command: bool) {
        if let Some(image) = &self.image {
            errors.check(
                "pod.image",
                &format!("{image:?}"),
                is_image(image),
                "an image's name of at most 512 characters, such as registry.example.com/vision/trainer:3.2",
            );
            errors.check(
                "pod.image",
                &format!("{image:?}"),
                has_command,
                "left out with engine, which is in Muster's own image",
            );
        }
        errors.check(
            "pod.pull_secrets",
            &format!("{} secrets", self.pull_secrets.len()),
            self.pull_secrets.len() <= MOST_PULL_SECRETS,
            &format!("at most {MOST_PULL_SECRETS}"),
        );
        for (index, name) in self.pull_secrets.iter().enumerate() {
            check_name(errors, &format!("pod.pull_secrets[{index}]"), name);
        }
        self.check_variables(errors);
        self.check_volumes(errors);
    }

    fn check_variables(&self, errors: &mut Errors) {
        errors.check(
            "pod.secret_env",
            &format!("{} variables", self.secret_env.len()),
            self.secret_env.len() <= MOST_VARIABLES,
            &format!("at most {MOST_VARIABLES}"),
        );
        for (name, from) in &self.secret_env {
            let field = format!("pod.secret_env.{name}");
            errors.check(
                &field,
                &format!("{name:?}"),
                is_variable(name),
                "a name of letters, digits, '_', '-' and '.' that does not begin with a digit",
            );
            errors.check(
                &field,
                &format!("{name:?}"),
                !Command::is_reserved(name) && name != "NVIDIA_VISIBLE_DEVICES",
                "left out: Muster sets it",
            );
            check_name(errors, &format!("{field}.secret"), &from.secret);
            errors.check(
                &format!("{field}.key"),
                &format!("{:?}", from.key),
                is_key(&from.key),
                "a key of the secret: 1 to 253 letters, digits, '-', '_' and '.'",
            );
        }
    }

    fn check_volumes(&self, errors: &mut Errors) {
        errors.check(
            "pod.volumes",
            &format!("{} volumes", self.volumes.len()),
            self.volumes.len() <= MOST_VOLUMES,
            &format!("at most {MOST_VOLUMES}"),
        );
        for (index, volume) in self.volumes.iter().enumerate() {
            check_volume(errors, &format!("pod.volumes[{index}]"), volume);
            let before = &self.volumes[..index];
            errors.check(
                &format!("pod.volumes[{index}].path"),
                &format!("{:?}", volume.path()),
                before.iter().all(|other| other.path() != volume.path()),
                "a path that no other volume has",
            );
        }
    }
}

fn check_volume(errors: &mut Errors, field: &str, volume: &Volume) {
    let path = volume.path();
    errors.check(
        &format!("{field}.path"),
        &format!("{path:?}"),
        is_mount_path(path),
        "an absolute path of at most 1024 bytes other than /, without ':', '.', '..' and empty parts",
    );
    match volume {
        Volume::Claim { name, sub_path, .. } => {
            check_name(errors, &format!("{field}.name"), name);
            if let Some(sub_path) = sub_path {
                errors.check(
                    &format!("{field}.sub_path"),
                    &format!("{sub_path:?}"),
                    sub_path.len() <= MOST_OF_A_PATH && parts_are_right(sub_path),
                    "a relative path of at most 1024 bytes, without '.', '..' and empty parts",
                );
            }
        }
        Volume::Secret { name, .. } | Volume::ConfigMap { name, .. } => {
            check_name(errors, &format!("{field}.name"), name);
        }
        Volume::Scratch { bytes, .. } | Volume::Memory { bytes, .. } => errors.check(
            &format!("{field}.bytes"),
            bytes,
            (1..=MOST_BYTES).contains(bytes),
            "1 to 1125899906842624 (1 PiB)",
        ),
    }
}

fn check_name(errors: &mut Errors, field: &str, name: &str) {
    errors.check(field, &format!("{name:?}"), is_object_name(name), NAME);
}

/// Whether a Kubernetes object can have this name (a DNS subdomain).
#[must_use]
pub(crate) fn is_object_name(name: &str) -> bool {
    name.len() <= MOST_OF_A_NAME && name.split('.').all(is_name_part)
}

fn is_name_part(part: &str) -> bool {
    part.starts_with(is_lowercase_or_digit)
        && part.ends_with(is_lowercase_or_digit)
        && part
            .chars()
            .all(|next| is_lowercase_or_digit(next) || next == '-')
}

fn is_lowercase_or_digit(next: char) -> bool {
    next.is_ascii_lowercase() || next.is_ascii_digit()
}

/// Whether the text can be an image: a path, a tag, a digest. Only length and characters are
/// checked.
#[must_use]
pub(crate) fn is_image(image: &str) -> bool {
    (1..=MOST_OF_AN_IMAGE).contains(&image.len())
        && image.starts_with(|next: char| next.is_ascii_alphanumeric())
        && image.ends_with(|next: char| next.is_ascii_alphanumeric())
        && image
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || "._-/:@".contains(next))
}

fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= MOST_OF_A_NAME
        && !name.starts_with(|next: char| next.is_ascii_digit())
        && name
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || "_-.".contains(next))
}

fn is_key(key: &str) -> bool {
    (1..=MOST_OF_A_NAME).contains(&key.len())
        && key
            .chars()
            .all(|next| next.is_ascii_alphanumeric() || "-_.".contains(next))
        && key != "."
        && !key.starts_with("..")
}

fn is_mount_path(path: &str) -> bool {
    let parts = path.strip_prefix('/');
    path.len() <= MOST_OF_A_PATH && !path.contains(':') && parts.is_some_and(parts_are_right)
}

pub(super) fn parts_are_right(path: &str) -> bool {
    !path.contains('\0')
        && path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..")
}
