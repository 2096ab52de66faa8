//! Contestants of a comparison: policies by name, with their inputs and their freedom.

use crate::reference_simulators::{Contestant, Learning, ObservationSource};
use muster_core::policies::SchedulingPolicy;
use muster_core::policies::gavel::Gavel;
use muster_core::policies::name::PolicyName;

/// Policies that choose the number of GPUs. The others give the requested number.
const ELASTIC: [&str; 6] = ["optimus", "slaq", "gandiva", "pollux", "sia", "muster"];

/// Elastic policies that also choose the batch size.
const ADAPTIVE: [&str; 3] = ["pollux", "sia", "muster"];

/// Elastic policies that receive the profiles. The authors of Optimus simulated it with them
/// ("Optimus+Oracle"). The other elastic policies learn from measurements of their jobs.
const WITH_ORACLE: [&str; 1] = ["optimus"];

/// Policy of this crate alone: Gavel as in Sia's artefact.
const GAVEL_STRICT: &str = "gavel-strict";

/// Variant of a policy, as the end of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Variant {
    Fixed,
    Learned,
    Oracle,
    Alone,
    NoKinds,
    NoPlacement,
    NoExploration,
}

impl Variant {
    const ALL: [Self; 7] = [
        Self::Fixed,
        Self::Learned,
        Self::Oracle,
        Self::Alone,
        Self::NoKinds,
        Self::NoPlacement,
        Self::NoExploration,
    ];

    fn suffix(self) -> &'static str {
        match self {
            Self::Fixed => "-fixed",
            Self::Learned => "-learned",
            Self::Oracle => "-oracle",
            Self::Alone => "-alone",
            Self::NoKinds => "-no-kinds",
            Self::NoPlacement => "-no-placement",
            Self::NoExploration => "-no-exploration",
        }
    }

    /// Whether a policy has this variant.
    fn applies(self, policy: &str) -> bool {
        match self {
            Self::Fixed => ADAPTIVE.contains(&policy),
            _ => ELASTIC.contains(&policy),
        }
    }

    /// Source of the policy's inputs; `None` leaves the usual one.
    fn source(self, policy: &str) -> Option<ObservationSource> {
        let learning = match self {
            Self::Fixed => return None,
            Self::Oracle => return Some(ObservationSource::Oracle),
            Self::Learned => Learning::Shared,
            Self::Alone if policy == "sia" => Learning::SiaArtefact,
            Self::Alone => Learning::PerJob,
            Self::NoKinds => Learning::WithoutKinds,
            Self::NoPlacement => Learning::WithoutPlacement,
            Self::NoExploration => Learning::WithoutExploration,
        };
        Some(ObservationSource::Learned(learning))
    }
}

/// Unknown contestant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no policy is named \"{given}\"; there are {known}, and behind the name of a policy that chooses the number of GPUs {variants} \
(-fixed only where it chooses the batch size)"
)]
pub struct UnknownContestant {
    pub given: String,
    pub known: String,
    pub variants: String,
}

impl UnknownContestant {
    fn of(given: &str) -> Self {
        Self {
            given: given.to_owned(),
            known: names().join(", "),
            variants: Variant::ALL.map(Variant::suffix).join(", "),
        }
    }
}

/// Returns a policy by its name or variant.
///
/// `muster-fixed` keeps the user's batch sizes. `optimus-learned` sees only measurements of its
/// jobs. `muster-oracle` sees the profiles. `sia-alone` learns each job by itself, as Sia's
/// artefact. The variants `-no-` learn without GPU kinds, nodes, or sizes above the requested ones.
/// `gavel-strict` is Gavel as in Sia's artefact. Policies that run jobs at the requested size know
/// the duration at that size.
///
/// # Errors
/// [`UnknownContestant`] with all valid names, also for a variant that the policy does not have.
pub fn contestant(given: &str) -> Result<Contestant, UnknownContestant> {
    if given == GAVEL_STRICT {
        let strict = Box::new(Gavel::strict_max_sum());
        return Ok(of_policy(given, given, None, strict));
    }
    let (plain, variant) = split(given);
    let policy: PolicyName = plain.parse().map_err(|_| UnknownContestant::of(given))?;
    if variant.is_some_and(|variant| !variant.applies(plain)) {
        return Err(UnknownContestant::of(given));
    }
    Ok(of_policy(given, plain, variant, policy.policy()))
}

fn of_policy(
    given: &str,
    plain: &str,
    variant: Option<Variant>,
    share: Box<dyn SchedulingPolicy>,
) -> Contestant {
    let is_elastic = ELASTIC.contains(&plain);
    let usual = if is_elastic && !WITH_ORACLE.contains(&plain) {
        ObservationSource::Learned(Learning::Shared)
    } else {
        ObservationSource::Oracle
    };
    let of_variant = variant.and_then(|variant| variant.source(plain));
    Contestant {
        name: given.to_owned(),
        share,
        observation_source: of_variant.unwrap_or(usual),
        adapts_batch: ADAPTIVE.contains(&plain) && variant != Some(Variant::Fixed),
        is_elastic,
    }
}

/// Names of all policies, of the `-fixed` variants, of `sia-alone` and of `gavel-strict`.
#[must_use]
pub fn names() -> Vec<String> {
    let mut names = Vec::new();
    for name in PolicyName::ALL.iter().map(|name| name.as_str()) {
        names.push(name.to_owned());
        if Variant::Fixed.applies(name) {
            names.push(format!("{name}{}", Variant::Fixed.suffix()));
        }
    }
    names.extend(["sia-alone", GAVEL_STRICT].map(str::to_owned));
    names
}

/// Splits into policy name and variant. A policy whose own name ends like a variant is not split.
fn split(given: &str) -> (&str, Option<Variant>) {
    if given.parse::<PolicyName>().is_ok() {
        return (given, None);
    }
    for variant in Variant::ALL {
        if let Some(plain) = given.strip_suffix(variant.suffix()) {
            return (plain, Some(variant));
        }
    }
    (given, None)
}

#[cfg(test)]
mod tests {
    use super::{contestant, names};
    use crate::reference_simulators::{Learning, ObservationSource};

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
            learned.observation_source == ObservationSource::Learned(Learning::Shared)
                && learned.name == "optimus-learned"
        );
        let seeing = contestant("slaq-oracle").expect("there");
        assert_eq!(seeing.observation_source, ObservationSource::Oracle);
        assert_eq!(
            contestant("slaq").expect("there").observation_source,
            ObservationSource::Learned(Learning::Shared)
        );
        assert_eq!(
            contestant("srtf").expect("there").observation_source,
            ObservationSource::Oracle
        );
    }

    #[test]
    fn alone_and_no_variants_learn_with_less() {
        for (name, learning) in [
            ("sia-alone", Learning::SiaArtefact),
            ("muster-alone", Learning::PerJob),
            ("muster-no-kinds", Learning::WithoutKinds),
            ("sia-no-placement", Learning::WithoutPlacement),
            ("muster-no-exploration", Learning::WithoutExploration),
        ] {
            let contestant = contestant(name).expect("there");
            let expected = ObservationSource::Learned(learning);
            assert_eq!(contestant.observation_source, expected, "{name}");
            assert!(contestant.adapts_batch, "{name}");
        }
        let strict = contestant("gavel-strict").expect("there");
        assert_eq!(strict.observation_source, ObservationSource::Oracle);
        assert!(!strict.is_elastic && !strict.adapts_batch);
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
