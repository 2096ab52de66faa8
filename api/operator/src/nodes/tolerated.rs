//! Tolerations of executor pods in the format of the setting: `KEY`, `KEY=VALUE`, each with an
//! optional `:EFFECT`, and `*` for every key. Pure.

use k8s_openapi::api::core::v1::Taint;
use std::str::FromStr;

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// Toleration; an absent part matches everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToleratedTaint {
    key: Option<String>,
    value: Option<String>,
    effect: Option<String>,
}

impl ToleratedTaint {
    #[must_use]
    pub fn covers(&self, taint: &Taint) -> bool {
        is_wanted(self.key.as_deref(), &taint.key)
            && is_wanted(
                self.value.as_deref(),
                taint.value.as_deref().unwrap_or_default(),
            )
            && is_wanted(self.effect.as_deref(), &taint.effect)
    }
}

/// Whether a field has the wanted value; every value is right where none is wanted.
fn is_wanted(wanted: Option<&str>, there: &str) -> bool {
    wanted.is_none_or(|wanted| wanted == there)
}

impl FromStr for ToleratedTaint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (rest, effect) = match text.split_once(':') {
            Some((rest, effect)) => (rest, Some(effect)),
            None => (text, None),
        };
        let (key, value) = match rest.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (rest, None),
        };
        if key.is_empty() {
            return Err(format!("{text:?}: expected a key, or * for every one"));
        }
        if let Some(effect) = effect.filter(|effect| !EFFECTS.contains(effect)) {
            let known = EFFECTS.join(", ");
            return Err(format!("the effect is {effect:?}; expected one of {known}"));
        }
        Ok(Self {
            key: Some(key.to_owned()).filter(|key| key != "*"),
            value: value.map(str::to_owned),
            effect: effect.map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn covers(tolerated: &str, (key, value, effect): (&str, &str, &str)) -> bool {
        let taint = Taint {
            key: key.to_owned(),
            value: Some(value.to_owned()).filter(|value| !value.is_empty()),
            effect: effect.to_owned(),
            time_added: None,
        };
        let tolerated: ToleratedTaint = tolerated.parse().expect("right");
        tolerated.covers(&taint)
    }

    #[test]
    fn taints_are_tolerated_as_in_kubernetes() {
        let taint = ("team", "vision", "NoSchedule");
        for tolerated in [
            "team",
            "team=vision",
            "team:NoSchedule",
            "team=vision:NoSchedule",
            "*",
            "*:NoSchedule",
        ] {
            assert!(covers(tolerated, taint), "{tolerated}");
        }
        for tolerated in [
            "other",
            "team=speech",
            "team:NoExecute",
            "team=",
            "*:NoExecute",
        ] {
            assert!(!covers(tolerated, taint), "{tolerated}");
        }
        assert!(covers("team=", ("team", "", "NoSchedule")));
        for wrong in ["", "=vision", "team:Never", ":NoSchedule"] {
            assert!(wrong.parse::<ToleratedTaint>().is_err(), "{wrong}");
        }
    }
}
