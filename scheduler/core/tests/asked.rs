//! The reason of an action names the user that requested it.

use crate::scene::Scene;
use muster_core::snapshot::{IntentOrigin, StudyMembership};
use muster_core::{Action, RoundPlan};
use muster_model::id::StudyId;
use muster_model::job::{Intent, JobPhase};
use uuid::Uuid;

fn ask(scene: &mut Scene, intent: Intent, by: Option<&str>) {
    let at_ms = scene.snapshot.now_ms;
    let job = scene.find("a");
    job.intent = intent;
    job.asked = Some(IntentOrigin {
        by: by.map(str::to_owned),
        at_ms,
    });
}

fn running() -> Scene {
    let mut scene = Scene::cluster(1, 2);
    scene.job("a").0.workers.max = 1;
    scene.settle();
    assert_eq!(scene.phase("a"), JobPhase::Running);
    scene
}

/// Returns the reasons of the decisions of a plan.
fn whys(plan: &RoundPlan) -> Vec<&str> {
    let whys = plan.decisions.iter().filter_map(|one| match &one.action {
        Action::Stop { why, .. } | Action::Suspend { why } | Action::Continue { why, .. } => {
            Some(why.as_str())
        }
        _ => None,
    });
    whys.collect()
}

#[test]
fn stop_reason_names_requesting_user() {
    for (intent, by, why) in [
        (Intent::Pause, Some("ada"), "paused by ada"),
        (
            Intent::Cancel,
            Some("root@default as administrator"),
            "cancelled by root@default as administrator",
        ),
        (Intent::Pause, None, "paused by its owner"),
    ] {
        let mut scene = running();
        ask(&mut scene, intent, by);
        assert_eq!(whys(&scene.round()), [why]);
    }
    let mut scene = running();
    scene.find("a").trial = Some(StudyMembership {
        study: StudyId(Uuid::from_u128(1)),
        gain: 0.5,
    });
    ask(&mut scene, Intent::Cancel, None);
    assert_eq!(whys(&scene.round()), ["cancelled by its study"]);
}

#[test]
fn continue_reason_names_requesting_user() {
    let mut scene = running();
    ask(&mut scene, Intent::Suspend, Some("ada"));
    assert_eq!(whys(&scene.round()), ["suspended by ada"]);
    scene.obey();
    scene.later(5_000);
    ask(&mut scene, Intent::Run, Some("bob"));
    assert_eq!(whys(&scene.round()), ["continued by bob"]);
}
