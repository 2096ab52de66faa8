//! Proposed priorities keep to the priority classes that the tenant's members may use.

use crate::scene::{Scene, tenant};
use muster_core::snapshot::{SnapshotTenant, StudyMembership};
use muster_model::id::StudyId;
use muster_model::priority::{PriorityClass, PriorityClassDocument};
use muster_model::wait::Change;
use uuid::Uuid;

fn class(name: &str, fields: &str) -> PriorityClass {
    let document: PriorityClassDocument = serde_json::from_str(fields).expect("a class");
    document.named(name).expect("valid")
}

/// Returns a cluster with these classes, which a long job of priority 5 of tenant t1 fills. Job
/// `low` of tenant t0 waits.
fn full(classes: &[(&str, &str)]) -> Scene {
    let mut scene = Scene::cluster(1, 2);
    scene.snapshot.tenants.push(SnapshotTenant {
        id: tenant(1),
        name: "t1".to_owned(),
        gpu_quota: None,
        weight: 1.0,
    });
    scene
        .job("holder")
        .workers(2, 2)
        .priority(5)
        .tenant(1)
        .steps(1_000_000_000);
    scene.settle();
    let classes = classes.iter().map(|(name, fields)| class(name, fields));
    scene.snapshot.priority_classes = classes.collect();
    scene.job("low").workers(2, 2);
    scene
}

/// Returns the priority and the class in the change that is proposed for job `low`, if it is a
/// raise.
fn raise(scene: &mut Scene) -> Option<(i32, Option<String>)> {
    scene.round();
    let waiting = scene.find("low").waiting.clone().expect("low waits");
    match waiting.smallest_change {
        Some(Change::RaisePriority { to, class }) => Some((to, class)),
        _ => None,
    }
}

#[test]
fn proposed_priority_is_one_that_a_member_may_set() {
    let members = r#"{ "lowest": 10, "highest": 20 }"#;
    let of_t0 = r#"{ "lowest": 10, "highest": 20, "tenants": ["t0"] }"#;
    let of_t1 = r#"{ "lowest": 10, "highest": 20, "tenants": ["t1"] }"#;
    let admins = r#"{ "lowest": 10, "highest": 20, "roles": ["admin"] }"#;
    let below = r#"{ "lowest": -50, "highest": 5 }"#;
    let around = r#"{ "lowest": -5, "highest": 8 }"#;
    for (classes, expected) in [
        (&[][..], Some(6)),
        (&[("all", members)], Some(10)),
        (&[("red", of_t0)], Some(10)),
        (&[("blue", of_t1)], None),
        (&[("repair", admins)], None),
        (&[("batch", below)], None),
        (&[("all", members), ("near", around)], Some(6)),
    ] {
        let proposed = raise(&mut full(classes)).map(|(to, _)| to);
        assert_eq!(proposed, expected, "{classes:?}");
    }
}

#[test]
fn proposed_priority_keeps_to_the_class_of_the_job() {
    let classes = [
        ("batch", r#"{ "lowest": -50, "highest": 5 }"#),
        ("urgent", r#"{ "lowest": 8, "highest": 20 }"#),
    ];
    // A class that was deleted does not bind its jobs.
    for (name, expected) in [
        ("urgent", Some((8, Some("urgent".to_owned())))),
        ("batch", None),
        ("deleted", Some((8, None))),
    ] {
        let mut scene = full(&classes);
        scene.find("low").priority_class = Some(name.to_owned());
        assert_eq!(raise(&mut scene), expected, "{name}");
    }
}

/// The API refuses to change the priority of a trial.
#[test]
fn no_raise_is_proposed_for_a_trial() {
    let mut scene = full(&[]);
    scene.find("low").trial = Some(StudyMembership {
        study: StudyId(Uuid::from_u128(7)),
        gain: 0.5,
    });
    assert_eq!(raise(&mut scene), None);
}
