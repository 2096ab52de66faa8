//! Contestants of a comparison: policies by name, with their inputs and their freedom.

use crate::reference_simulators::{Contestant, ObservationSource};
use muster_core::policies::name::PolicyName;

/// Policies that choose the number of GPUs. The others give the requested number.
const ELASTIC: [&str; 6] = ["optimus", "slaq", "gandiva", "pollux", "sia", "muster"];

/// Elastic policies that also choose the batch size.
const ADAPTIVE: [&str; 3] = ["pollux", "sia", "muster"];

/// Elastic policies that receive the profiles. The authors of Optimus simulated it with them
/// ("Optimus+Oracle"). The other elastic policies learn from measurements of their jobs.
const WITH_ORACLE: [&str; 1] = ["optimus"];

/// Suffixes of variants.
const FIXED: &str = "-fixed";
const LEARNED: &str = "-learned";
const ORACLE: &str = "-oracle";

/// Unknown contestant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no policy is named \"{given}\"; there are {known}, and behind a name {FIXED} (the user's batch size) where they choose it, {LEARNED} and \
{ORACLE} (without and with the profiles' speeds) where they choose the number of GPUs"
)]
pub struct UnknownContestant {
    pub given: String,
    pub known: String,
}

impl UnknownContestant {
    fn of(given: &str) -> Self {
        Self {
            given: given.to_owned(),
            known: names().join(", "),
        }
    }
}

/// Returns a policy by its name or variant.
///
/// `muster-fixed` keeps the user's batch sizes. `optimus-learned` sees only measurements of its
/// jobs. `muster-oracle` sees the profiles. Policies that run jobs at the requested size know the
/// duration at that size.
///
/// # Errors
/// [`UnknownContestant`] with all valid names, also for a variant that the policy does not have.
pub fn contestant(given: &str) -> Result<Contestant, UnknownContestant> {
    let (plain, variant) = split(given);
    let policy: PolicyName = plain.parse().map_err(|_| UnknownContestant::of(given))?;
    let (adapts, is_elastic) = (ADAPTIVE.contains(&plain), ELASTIC.contains(&plain));
    if variant.is_some() && !is_elastic || variant == Some(FIXED) && !adapts {
        return Err(UnknownContestant::of(given));
    }
    let sees_all = match variant {
        Some(ORACLE) => true,
        Some(LEARNED) => false,
        _ => !is_elastic || WITH_ORACLE.contains(&plain),
    };
    Ok(Contestant {
        name: given.to_owned(),
        share: policy.policy(),
        observation_source: if sees_all {
            ObservationSource::Oracle
        } else {
            ObservationSource::Learned
        },
        adapts_batch: adapts && variant != Some(FIXED),
        is_elastic,
    })
}

/// Names of all policies and of the `-fixed` variants.
#[must_use]
pub fn names() -> Vec<String> {
    let plain = PolicyName::ALL.iter().map(|name| name.as_str());
    plain
        .flat_map(|name| {
            let fixed = ADAPTIVE.contains(&name).then(|| format!("{name}{FIXED}"));
            std::iter::once(name.to_owned()).chain(fixed)
        })
        .collect()
}

/// Splits into policy name and variant. A policy whose own name ends like a variant is not split.
fn split(given: &str) -> (&str, Option<&'static str>) {
    if given.parse::<PolicyName>().is_ok() {
        return (given, None);
    }
    for variant in [FIXED, LEARNED, ORACLE] {
        if let Some(plain) = given.strip_suffix(variant) {
            return (plain, Some(variant));
        }
    }
    (given, None)
}

#[cfg(test)]
mod tests {
    use super::{contestant, names};
    use crate::reference_simulators::ObservationSource;

    #[test]
    fn every_listed_name_gives_contestant() {
        for name in names() {
            assert_eq!(contestant(&name).expect("it is listed").name, name);
        }
    }

    #[test]
    fn variants_change_inputs_and_freedom() {
        let optimus = contestant("optimus").expect("there");
        assert!(
            optimus.observation_source == ObservationSource::Oracle
                && optimus.is_elastic
                && !optimus.adapts_batch
        );
        let learned = contestant("optimus-learned").expect("there");
        assert!(
            learned.observation_source == ObservationSource::Learned
                && learned.name == "optimus-learned"
        );
        let seeing = contestant("slaq-oracle").expect("there");
        assert_eq!(seeing.observation_source, ObservationSource::Oracle);
        assert_eq!(
            contestant("slaq").expect("there").observation_source,
            ObservationSource::Learned
        );
        assert_eq!(
            contestant("srtf").expect("there").observation_source,
            ObservationSource::Oracle
        );
    }

    #[test]
    fn unknown_name_error_lists_known_names() {
        let Err(error) = contestant("optimos") else {
            panic!("no policy has that name");
        };
        assert!(error.to_string().contains("tiresias, "), "{error}");
        assert!(contestant("optimus-fixed").is_err(), "it chooses no batch");
        assert!(
            contestant("tiresias-learned").is_err(),
            "it needs no speeds"
        );
    }
}
