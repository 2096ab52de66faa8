//! A member is lost between two collectives on different ranges: the member that has completed the
//! first one sends its sum to the others.
//!
//! The members are threads that define where the loss occurs; their data uses real links.

use muster_comm::collective::{AlgorithmChoice, CollectiveGroup};
use muster_comm::fabric::{
    Coordinator, Credentials, FabricError, FabricOptions, Gathering, GroupView, MemberReport,
    PeerPort,
};
use muster_model::id::{JobId, TaskId};
use std::ops::Range;
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use uuid::Uuid;

const FLOATS: usize = 10;
const FIRST: Range<usize> = 0..3;
const SECOND: Range<usize> = 3..10;
const VICTIM: u32 = 2;

struct GatheringCoordinator {
    gathering: Mutex<Gathering>,
    formed: Condvar,
}

impl Coordinator for GatheringCoordinator {
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String> {
        let (id, left) = (report.member.id, report.view);
        let mut gathering = self.gathering.lock().unwrap();
        gathering.report(report)?;
        if gathering.next_view().is_some() {
            self.formed.notify_all();
        }
        loop {
            let view = gathering.view();
            if view.number > left && view.rank_of(id).is_some() {
                return Ok(view.clone());
            }
            gathering = self.formed.wait(gathering).unwrap();
        }
    }

    fn someone_waits(&self) -> bool {
        false
    }
}

fn task(number: u32) -> TaskId {
    TaskId(Uuid::from_u128(number.into()))
}

fn join(server: &Arc<GatheringCoordinator>, number: u32) -> CollectiveGroup {
    let credentials = Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "cd".repeat(32),
        id: task(number),
        attempt: 1,
    };
    let port = PeerPort::bind("127.0.0.1", None, credentials).unwrap();
    let options = FabricOptions {
        shared_memory: false,
        ..FabricOptions::default()
    };
    let server = Arc::clone(server);
    CollectiveGroup::start(
        port,
        server,
        FLOATS,
        AlgorithmChoice::Fastest,
        false,
        options,
    )
    .unwrap()
}

/// Fills `range` of the sums; if `is_interrupted`, only in the view without the victim.
fn reduce(
    group: &mut CollectiveGroup,
    range: Range<usize>,
    is_interrupted: bool,
    value: f32,
) -> usize {
    let first = group.view().number;
    let victim = group.view().rank_of(task(VICTIM));
    let reduced = group.all_reduce_by(range.clone(), |_, view, sums| {
        if is_interrupted && view == first {
            let rank = victim.expect("it was there");
            return Err(FabricError::Lost { rank });
        }
        sums[range.clone()].fill(value);
        Ok(())
    });
    reduced.unwrap().contributions
}

fn of_last_sum(group: &CollectiveGroup) -> usize {
    group.of_last_sum().map_or(0, <[_]>::len)
}

#[test]
fn sum_of_a_completed_range_is_passed_on() {
    let server = Arc::new(GatheringCoordinator {
        gathering: Mutex::new(Gathering::new(3)),
        formed: Condvar::new(),
    });
    let all_are_in = Barrier::new(3);
    let enter = |number| {
        let group = join(&server, number);
        all_are_in.wait();
        group
    };
    thread::scope(|scope| {
        let enter = &enter;
        scope.spawn(move || {
            let mut group = enter(0);
            assert_eq!(reduce(&mut group, FIRST, false, 1.0), 3);
            // This member does not know of the loss; a member that does cuts the next step in the
            // same way.
            assert_eq!((of_last_sum(&group), group.view().members.len()), (3, 3));
            assert_eq!(reduce(&mut group, SECOND, true, 2.0), 2);
            assert_eq!(group.sums()[..3], [1.0; 3]);
        });
        scope.spawn(move || {
            let mut group = enter(1);
            // The own sum would be 7, but the sum of three members was already complete.
            assert_eq!(reduce(&mut group, FIRST, true, 7.0), 3);
            assert_eq!((of_last_sum(&group), group.view().members.len()), (3, 2));
            assert_eq!(group.sums()[..3], [1.0; 3]);
            assert_eq!(reduce(&mut group, SECOND, false, 2.0), 2);
        });
        scope.spawn(move || drop(enter(VICTIM)));
    });
}
