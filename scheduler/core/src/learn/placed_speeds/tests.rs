use super::*;
use crate::learn::SpreadPenalty;

fn observed(kind: &str, nodes: u32, steps_per_s: f64, samples: f64) -> Observation {
    Observation {
        gpu_kind: kind.to_owned(),
        workers: 2,
        ps_shards: 1,
        nodes,
        steps_per_s,
        samples,
        batch: None,
    }
}

/// Returns the mean over these observations of one place, as the store computes it.
fn mean(kind: &str, all: &[&Observation]) -> Observation {
    let samples: f64 = all.iter().map(|one| one.samples).sum();
    let sum: f64 = all
        .iter()
        .map(|one| one.samples * one.steps_per_s.ln())
        .sum();
    observed(kind, 1, (sum / samples).exp(), samples)
}

fn speed_of(speeds: &PlacedSpeeds<'_>, kind: &str) -> (f64, f64) {
    let speed = speeds.on(kind).expect("measured")[&((2, 1), Spread::OneNode)];
    (speed.ln_speed.exp(), speed.trust)
}

#[test]
fn own_samples_replace_family_as_they_grow() {
    let others = observed("a", 1, 10.0, 100.0);
    for (samples, speed) in [(0.0, 10.0), (2.0, 12.0), (10.0, 20.0)] {
        let own = [observed("a", 1, 20.0, samples)];
        let family = [mean("a", &[&own[0], &others])];
        let speeds = PlacedSpeeds::of(&own, &family, 10.0);
        let (found, trust) = speed_of(&speeds, "a");
        assert!((trust - 1.0).abs() < 1e-9);
        match samples {
            0.0 | 10.0 => assert!((found - speed).abs() < 1e-9, "{found}"),
            _ => assert!(found > speed && found < 20.0, "{found}"),
        }
    }
}

#[test]
fn own_samples_are_taken_out_of_family() {
    let own = [observed("a", 1, 20.0, 5.0)];
    let family = [mean("a", &[&own[0], &observed("a", 1, 5.0, 5.0)])];
    // The other half of the family is slower, so the job counts as faster than its family.
    let (found, trust) = speed_of(&PlacedSpeeds::of(&own, &family, 10.0), "a");
    assert!((trust - 0.75).abs() < 1e-9);
    assert!(found > 15.0 && found < 20.0, "{found}");
    let alone = PlacedSpeeds::of(&own, &own, 10.0);
    assert_eq!(speed_of(&alone, "a").1, 0.5, "no trust twice");
}

#[test]
fn job_faster_than_family_is_so_on_other_kinds() {
    let own = [observed("a", 1, 20.0, 100.0)];
    let on_a = mean("a", &[&own[0], &observed("a", 1, 10.0, 100.0)]);
    let family = [on_a, observed("b", 1, 30.0, 100.0)];
    let (found, _) = speed_of(&PlacedSpeeds::of(&own, &family, 10.0), "b");
    assert!(found > 35.0 && found < 60.0, "{found}");
}

#[test]
fn outdated_family_mean_gives_no_speed_outside_the_measured() {
    // The family was read before the last eight own samples.
    let then = mean(
        "a",
        &[&observed("a", 1, 5.0, 10.0), &observed("a", 1, 20.0, 3.0)],
    );
    let own = [observed("a", 1, 20.0, 11.0)];
    let family = [then, observed("b", 1, 5.0, 10.0)];
    let speeds = PlacedSpeeds::of(&own, &family, 10.0);
    let (on_b, _) = speed_of(&speeds, "b");
    assert!(on_b > 5.0 && on_b < 20.0, "{on_b}");
}

#[test]
fn ratio_of_kinds_needs_a_common_placement() {
    let family = [observed("a", 1, 10.0, 9.0), observed("b", 2, 30.0, 9.0)];
    assert_eq!(
        PlacedSpeeds::of(&[], &family, 10.0).ln_ratio("b", "a"),
        None
    );
    let family = [observed("a", 1, 10.0, 9.0), observed("b", 1, 30.0, 9.0)];
    let ratio = PlacedSpeeds::of(&[], &family, 10.0).ln_ratio("b", "a");
    assert!((ratio.expect("measured").exp() - 3.0).abs() < 1e-9);
}

#[test]
fn spread_penalty_is_learned_where_measured() {
    let family = [observed("a", 1, 10.0, 100.0), observed("a", 3, 6.0, 100.0)];
    let speeds = PlacedSpeeds::of(&[], &family, 10.0);
    let learned = SpreadPenalty::of(&speeds, 0.98);
    assert!((learned.factor("a", (2, 1)) - 0.6).abs() < 1e-9);
    assert!(
        (learned.factor("b", (8, 1)) - 0.6).abs() < 1e-9,
        "elsewhere"
    );
    let local = [observed("a", 1, 10.0, 100.0)];
    let unknown = SpreadPenalty::of(&PlacedSpeeds::of(&[], &local, 10.0), 0.98);
    assert!((unknown.factor("a", (2, 1)) - 0.98).abs() < 1e-9);
}
