//! Cluster objects that the pods of a tenant's tasks may use. Administrators set them; they are
//! checked when a job or study is submitted.
//!
//! The task pods of all tenants share one namespace. A job that could name any secret of it could
//! read those of other tenants and of Muster.

use crate::spec::{FieldError, Pod, Volume, is_image, is_object_name};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Maximum number of names in one list.
const MOST: usize = 256;

/// Cluster objects that the pods of a tenant's tasks may use. By default any image and nothing
/// else.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
pub struct TenantPods {
    /// Service account of the tasks, whose token they get; the cluster's default for tasks if left
    /// out. A change takes effect at a task's next start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// Images that jobs may name: a full name or a prefix with `*`. A prefix ends with `/`
    /// (`registry.example.com/vision/*`), with `:` or `@` (any tag or digest of one image), or
    /// within a folder (`registry.example.com/vision/trainer-*`, without deeper folders). An empty
    /// list allows any image, as `*` does; no list forbids all images. At most 256.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub images: Vec<String>,
    /// Volume claims that jobs may mount. At most 256.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub claims: Vec<String>,
    /// Secrets that jobs may mount, read variables from and pull images with. At most 256.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub secrets: Vec<String>,
    /// ConfigMaps that jobs may mount. At most 256.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schema(max_items = 256))]
    pub config_maps: Vec<String>,
}

/// One of the lists.
#[derive(Clone, Copy)]
enum What {
    Image,
    Claim,
    Secret,
    ConfigMap,
}

impl TenantPods {
    /// Whether no administrator has set anything.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Checks the names; `field` is the position of this object in the document.
    ///
    /// # Errors
    /// One [`FieldError`] per name that no Kubernetes object or image can have.
    pub fn validate(&self, field: &str) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut check = |field: String, value: &str, is_right: bool, expected: &str| {
            if !is_right {
                errors.push(FieldError {
                    field,
                    value: format!("{value:?}"),
                    expected: expected.to_owned(),
                });
            }
        };
        let name = "the name of an object of Kubernetes: 1 to 253 of a-z, 0-9, '-' and '.'";
        if let Some(account) = &self.service_account {
            let is_right = is_object_name(account);
            check(format!("{field}.service_account"), account, is_right, name);
        }
        for what in [What::Image, What::Claim, What::Secret, What::ConfigMap] {
            let (list, of) = self.list(what);
            if list.len() > MOST {
                let count = list.len().to_string();
                check(
                    format!("{field}.{of}"),
                    &count,
                    false,
                    "at most 256 of them",
                );
            }
            for (index, one) in list.iter().enumerate() {
                let field = format!("{field}.{of}[{index}]");
                match what {
                    What::Image => check(
                        field,
                        one,
                        is_pattern(one),
                        "an image, what images begin with (a registry whole, as in registry.example.com/vision/* or registry.example.com/vision/trainer-*), or * alone",
                    ),
                    _ => check(field, one, is_object_name(one), name),
                }
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    /// Checks the pods of a job (at `field` of its document) against these lists.
    ///
    /// # Errors
    /// One [`FieldError`] per object that `tenant` may not use.
    pub fn allow(&self, pod: &Pod, tenant: &str, field: &str) -> Result<(), Vec<FieldError>> {
        let mut errors = Vec::new();
        let mut ask = |what: What, field: String, name: &str| {
            if !self.has(what, name) {
                let value = format!("{name:?}");
                let expected = self.allowed(what, tenant);
                errors.push(FieldError {
                    field,
                    value,
                    expected,
                });
            }
        };
        if let Some(image) = &pod.image {
            ask(What::Image, format!("{field}.image"), image);
        }
        for (index, name) in pod.pull_secrets.iter().enumerate() {
            ask(What::Secret, format!("{field}.pull_secrets[{index}]"), name);
        }
        for (variable, from) in &pod.secret_env {
            let field = format!("{field}.secret_env.{variable}.secret");
            ask(What::Secret, field, &from.secret);
        }
        for (index, volume) in pod.volumes.iter().enumerate() {
            let field = format!("{field}.volumes[{index}].name");
            match volume {
                Volume::Claim { name, .. } => ask(What::Claim, field, name),
                Volume::Secret { name, .. } => ask(What::Secret, field, name),
                Volume::ConfigMap { name, .. } => ask(What::ConfigMap, field, name),
                Volume::Scratch { .. } | Volume::Memory { .. } => {}
            }
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(errors)
        }
    }

    fn list(&self, what: What) -> (&[String], &'static str) {
        match what {
            What::Image => (&self.images, "images"),
            What::Claim => (&self.claims, "claims"),
            What::Secret => (&self.secrets, "secrets"),
            What::ConfigMap => (&self.config_maps, "config_maps"),
        }
    }

    fn has(&self, what: What, name: &str) -> bool {
        let (list, _) = self.list(what);
        match what {
            What::Image => list.is_empty() || list.iter().any(|pattern| matches(pattern, name)),
            _ => list.iter().any(|one| one == name),
        }
    }

    fn allowed(&self, what: What, tenant: &str) -> String {
        let (list, _) = self.list(what);
        let allowed = match list {
            [] => "none so far".to_owned(),
            list => list.join(", "),
        };
        format!("{what} that an administrator lets jobs of tenant {tenant} have: {allowed}")
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Image => "an image",
            Self::Claim => "a claim",
            Self::Secret => "a secret",
            Self::ConfigMap => "a ConfigMap",
        })
    }
}

/// Characters at which the name of a registry, a folder or an image ends.
const ENDS: [char; 3] = ['/', ':', '@'];

/// Whether `image` matches `pattern`. A `*` must not extend the name of a registry:
/// `registry.example.com*` would match `registry.example.com.evil.io`. Within a folder it matches
/// the rest of an image's name, tag and digest, but no deeper folder.
///
/// Older releases stored other patterns. They match only if the name ends where the `*` begins.
fn matches(pattern: &str, image: &str) -> bool {
    let Some(begins) = pattern.strip_suffix('*') else {
        return image == pattern;
    };
    if begins.is_empty() {
        return true;
    }
    let Some(rest) = image.strip_prefix(begins) else {
        return false;
    };
    if begins.contains('/') && !rest.contains('/') {
        return true;
    }
    let mut after = rest.chars();
    match begins.chars().next_back() {
        Some(end) if ENDS.contains(&end) => is_below(end, rest),
        _ => {
            let end = after.next();
            end.is_none_or(|end| ENDS.contains(&end) && is_below(end, after.as_str()))
        }
    }
}

/// Whether `rest` is below a name that ends with `end`. After `:` or `@` it must be a tag or
/// digest; with a `/` in it, the `:` would have preceded a port.
fn is_below(end: char, rest: &str) -> bool {
    end == '/' || !rest.contains('/')
}

fn is_pattern(pattern: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some("") => true,
        // With its end character this is no image name, so the name before it is checked.
        Some(begins) => match begins.strip_suffix(ENDS) {
            Some(whole) => is_image(whole),
            None => begins.contains('/') && is_image(&format!("{begins}x")),
        },
        None => is_image(pattern),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(text: &str) -> Pod {
        serde_norway::from_str(text).expect("pods")
    }

    fn refused(pods: &TenantPods, pod: &Pod) -> Vec<String> {
        let errors = pods.allow(pod, "vision", "pod").err().unwrap_or_default();
        errors.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn tenant_without_permissions_has_only_images_and_folders() {
        let nothing = TenantPods::default();
        let own = "{ image: any/image, volumes: [{ kind: memory, path: /dev/shm, bytes: 1Gi }, { kind: scratch, path: /s, bytes: 1 }] }";
        assert_eq!(refused(&nothing, &pod(own)), [""; 0]);
        let others = "
pull_secrets: [a]
secret_env: { KEY: { secret: b, key: k } }
volumes:
  - { kind: claim, name: c, path: /c }
  - { kind: secret, name: d, path: /d }
  - { kind: config_map, name: e, path: /e }
";
        let refused = refused(&nothing, &pod(others));
        let fields: Vec<&str> = refused
            .iter()
            .filter_map(|one| one.split(' ').next())
            .collect();
        assert_eq!(
            fields,
            [
                "pod.pull_secrets[0]",
                "pod.secret_env.KEY.secret",
                "pod.volumes[0].name",
                "pod.volumes[1].name",
                "pod.volumes[2].name"
            ]
        );
        assert!(
            refused[2].contains("a claim that an administrator lets jobs of tenant vision have"),
            "{refused:?}"
        );
    }

    #[test]
    fn permission_applies_to_kind_and_name() {
        let pods = TenantPods {
            images: vec!["r.io/vision/*".to_owned(), "r.io/base:1".to_owned()],
            claims: vec!["data".to_owned()],
            secrets: vec!["wandb".to_owned()],
            ..TenantPods::default()
        };
        assert_eq!(pods.validate("pods"), Ok(()));
        for right in [
            "{ image: r.io/vision/trainer:3 }",
            "{ image: 'r.io/base:1' }",
            "{ pull_secrets: [wandb], secret_env: { A: { secret: wandb, key: k } } }",
            "{ volumes: [{ kind: claim, name: data, path: /d }, { kind: secret, name: wandb, path: /w }] }",
        ] {
            assert_eq!(refused(&pods, &pod(right)), [""; 0], "{right}");
        }
        for wrong in [
            "{ image: r.io/visionary/trainer }",
            "{ image: 'r.io/base:10' }",
            "{ image: evil.io/r.io/vision/trainer }",
            "{ pull_secrets: [data] }",
            "{ volumes: [{ kind: claim, name: wandb, path: /d }] }",
            "{ volumes: [{ kind: config_map, name: wandb, path: /d }] }",
        ] {
            assert_eq!(refused(&pods, &pod(wrong)).len(), 1, "{wrong}");
        }
    }

    fn of_images(images: &[&str]) -> TenantPods {
        TenantPods {
            images: images.iter().map(|image| (*image).to_owned()).collect(),
            ..TenantPods::default()
        }
    }

    fn allows(pattern: &str, image: &str) -> bool {
        of_images(&[pattern]).has(What::Image, image)
    }

    #[test]
    fn image_star_extends_neither_registry_nor_folder() {
        for (pattern, image) in [
            ("*", "any/image"),
            ("r.io/*", "r.io/vision/trainer:3"),
            ("r.io:5000/*", "r.io:5000/trainer"),
            ("r.io/base:*", "r.io/base:10"),
            ("r.io/base@*", "r.io/base@sha256:00"),
            ("r.io/base:1.*", "r.io/base:1.2"),
            ("r.io/vision/trainer-*", "r.io/vision/trainer-a:1"),
            ("r.io/vision/trainer-*", "r.io/vision/trainer-@sha256:00"),
        ] {
            assert_eq!(of_images(&[pattern]).validate("pods"), Ok(()), "{pattern}");
            assert!(allows(pattern, image), "{pattern} {image}");
        }
        // A port is not a tag: the pattern would allow images of another registry.
        for (pattern, image) in [
            ("base:*", "base:5000/x"),
            ("r.io/base:*", "r.io/base"),
            ("r.io/trainer-*", "r.io/trainer-evil/x"),
            ("r.io/vision*", "r.io/visions/x"),
        ] {
            assert!(!allows(pattern, image), "{pattern} {image}");
        }
        for wrong in ["r.io*", "trainer-*", "/*", "/x*", "r.io//*", "**"] {
            let errors = of_images(&["*", wrong]).validate("pods").expect_err(wrong);
            let said = errors[0].to_string();
            assert!(said.starts_with("pods.images[1] is"), "{said}");
            assert!(said.contains(wrong), "{said}");
            assert!(said.contains("a registry whole, as in"), "{said}");
        }
    }

    /// Older releases accepted such a pattern.
    #[test]
    fn stored_pattern_without_an_end_matches_only_its_registry() {
        let text = r#"{ "images": ["registry.example.com*"] }"#;
        let stored: TenantPods = serde_json::from_str(text).expect("it is read");
        for image in ["/vision/x:1", ":1", "@sha256:00", ""] {
            let image = format!("registry.example.com{image}");
            assert!(stored.has(What::Image, &image), "{image}");
        }
        for image in [".evil.io/x", "-evil.io/x", ":5000/x", "2/x"] {
            let image = format!("registry.example.com{image}");
            assert!(!stored.has(What::Image, &image), "{image}");
        }
    }

    #[test]
    fn invalid_name_in_pods_is_refused_by_its_field() {
        let pods = TenantPods {
            service_account: Some("Trainers".to_owned()),
            images: vec!["*".to_owned(), "r.io/*/x".to_owned()],
            claims: vec![String::new()],
            secrets: vec!["a_b".to_owned()],
            config_maps: vec!["a..b".to_owned()],
        };
        let errors = pods.validate("pods").expect_err("much is wrong");
        let fields: Vec<&str> = errors.iter().map(|one| one.field.as_str()).collect();
        let expected = [
            "pods.service_account",
            "pods.images[1]",
            "pods.claims[0]",
            "pods.secrets[0]",
            "pods.config_maps[0]",
        ];
        assert_eq!(fields, expected);
    }
}
