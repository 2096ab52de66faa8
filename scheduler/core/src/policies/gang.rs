//! Rigid gangs in an order: whoever fits into what those before it left runs, at the size that was asked for.

use super::order::request;
use super::room::{Room, Style};
use crate::problem::{Decision, Problem, gpus_of};

/// Serves the jobs in the order in which `queue` names them, beginning with the room as it is at the start; each decision may ask for the queue more than once. A queue names a
/// job at most once, and may look at what was given so far.
///
/// Who runs is settled by a walk in which every job takes its place at once. Since that would push running jobs aside without
/// need, those who run are then placed again with all that run already on their old nodes; where the newcomers do not fit so
/// (whole units, CPU, memory), or where that would let somebody else in at the next decision, the walk itself is the answer. It
/// is stable: every job finds at its turn what it found before.
pub fn run<'a, Q>(start: &Room<'a>, style: Style, queue: impl Fn() -> Q) -> Room<'a>
where
    Q: FnMut(&Room<'_>) -> Option<usize>,
{
    let (order, walked) = walk(start.clone(), style, queue());
    if let Some(settled) = settle(start, &order, &walked, style) {
        let given = settled.clone().into_given();
        let (_, again) = walk(start.clone().with_present(&given), style, queue());
        if again.into_given() == given {
            return settled;
        }
    }
    walked
}

/// The same for an order that is known beforehand.
pub fn in_order(problem: &Problem, style: Style, order: &[usize]) -> Decision {
    let queue = || {
        let mut order = order.iter().copied();
        move |_: &Room<'_>| order.next()
    };
    run(&Room::beside_fixed(problem), style, queue).decision()
}

/// Each in its turn: on its old place if nobody before it took that, else wherever it fits. Returns the order as well.
fn walk<'a>(
    mut room: Room<'a>,
    style: Style,
    mut queue: impl FnMut(&Room<'_>) -> Option<usize>,
) -> (Vec<usize>, Room<'a>) {
    let mut order = Vec::new();
    while let Some(job) = queue(&room) {
        order.push(job);
        let of = &room.problem.jobs[job];
        if !of.is_movable() {
            continue;
        }
        if gpus_of(room.present(job)) == request(of) && room.can_keep(job) {
            room.keep(job);
        } else {
            room.place(job, request(of), style);
        }
    }
    (order, room)
}

/// Those who run after the walk, with as many as can be on the nodes that they hold.
fn settle<'a>(
    start: &Room<'a>,
    order: &[usize],
    walked: &Room<'a>,
    style: Style,
) -> Option<Room<'a>> {
    let mut room = start.clone();
    let mut anew: Vec<(usize, u16, u32)> = Vec::new();
    for &job in order {
        let Some(parts) = walked.given(job) else {
            continue;
        };
        let (kind, gpus) = (room.kind_of(parts)?, gpus_of(parts));
        let present = room.present(job);
        let stays = gpus_of(present) == gpus && room.kind_of(present) == Some(kind);
        if stays && room.can_keep(job) {
            room.keep(job);
        } else {
            anew.push((job, kind, gpus));
        }
    }
    let mut placed = anew.into_iter();
    placed
        .all(|(job, kind, gpus)| room.place_on(job, kind, gpus, style))
        .then_some(room)
}
