//! Programs that come back to their GPUs where others have memory too, by the stand-in of the driver's library.

use crate::driver::{at_work, calls, notes, states, tell, turn, until_continued, until_suspended};
use crate::site::Site;
use muster_model::assignment::Observed;
use muster_model::task::Outcome;

/// What the stand-in's GPU has.
const WHOLE: u64 = 16 << 30;

#[test]
fn who_is_to_end_comes_back_only_where_there_is_room() {
    for (other_gb, killed) in [(4_u64, false), (15, true)] {
        let site = Site::with_gpu(&["--driver-patience-ms", "1500"]);
        let mut task = at_work(&site);
        turn(&site, &mut task, 1);
        until_suspended(&site, &task, 1);
        assert_eq!(states(&site), ["2", "2"]);
        // Another job has its turn.
        tell(&site, "other", &(other_gb << 30).to_string());
        site.scheduler.assign(99, &[task.stopped()]);
        assert_eq!(site.until_gone(&task), Outcome::Stopped { killed });
        let restored = calls(&site).contains(&"restore".to_owned());
        assert_eq!(restored, !killed);
        assert_eq!(notes(&site, &task).len(), usize::from(killed));
        assert!(!site.processes().is_empty(), "the daemon lives");
        let observed = site.scheduler.heard().last(task.id()).cloned();
        assert!(matches!(observed, Some(Observed::Gone { .. })));
        site.finish();
    }
}

#[test]
fn who_finds_no_room_on_its_gpus_waits_for_it() {
    let site = Site::with_gpu(&["--driver-patience-ms", "1500"]);
    let mut task = at_work(&site);
    turn(&site, &mut task, 1);
    until_suspended(&site, &task, 1);
    // Another job's memory stays where it is when that is suspended.
    tell(&site, "other", &WHOLE.to_string());
    turn(&site, &mut task, 2);
    site.until_it("it says that it waits", || !notes(&site, &task).is_empty());
    // The turn may pass before there is room.
    turn(&site, &mut task, 3);
    until_suspended(&site, &task, 3);
    assert_eq!(states(&site), ["2", "2"]);
    turn(&site, &mut task, 4);
    tell(&site, "other", "0");
    until_continued(&site, &task, 4);
    let said = notes(&site, &task);
    assert!(said[0].contains("waits for room on its GPUs"), "{said:?}");
    assert_eq!(said.len(), 1, "once for each turn at most: {said:?}");
    // Told to stop while it waits, it has no more than its grace.
    turn(&site, &mut task, 5);
    until_suspended(&site, &task, 5);
    tell(&site, "other", &WHOLE.to_string());
    turn(&site, &mut task, 6);
    site.until_it("it says so anew", || notes(&site, &task).len() == 2);
    site.scheduler.assign(99, &[task.stopped()]);
    assert_eq!(site.until_gone(&task), Outcome::Stopped { killed: true });
    site.finish();
}
