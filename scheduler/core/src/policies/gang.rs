//! Rigid gangs in an order: whoever fits into what those before it left runs, at the size that was asked for.

use super::order::request;
use super::room::{Room, Style};
use crate::problem::{Decision, Part, Problem, gpus_of};

/// Serves the jobs in the order in which `queue` names them; each decision may ask for the queue more than once. A queue names a
/// job at most once, and may look at what was given so far.
///
/// Who runs is settled by a walk in which every job takes its place at once. Since that would push running jobs aside without
/// need, those who run are then placed again with all that run already on their old nodes; where the newcomers do not fit so
/// (whole units, CPU, memory), or where that would let somebody else in at the next decision, the walk itself is the answer. It
/// is stable: every job finds at its turn what it found before.
pub fn run<Q>(problem: &Problem, style: Style, queue: impl Fn() -> Q) -> Decision
where
    Q: FnMut(&Room<'_>) -> Option<usize>,
{
    let (order, walked) = walk(Room::beside_fixed(problem), style, queue());
    if let Some(settled) = settle(problem, &order, &walked, style) {
        let given = settled.clone().into_given();
        let again = walk(
            Room::beside_fixed(problem).with_present(&given),
            style,
            queue(),
        );
        if again.1.into_given() == given {
            return settled.decision();
        }
    }
    walked.decision()
}

/// The same for an order that is known beforehand.
pub fn in_order(problem: &Problem, style: Style, order: &[usize]) -> Decision {
    run(problem, style, || {
        let mut order = order.iter().copied();
        move |_: &Room<'_>| order.next()
    })
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
    problem: &'a Problem,
    order: &[usize],
    walked: &Room<'a>,
    style: Style,
) -> Option<Room<'a>> {
    let mut room = Room::beside_fixed(problem);
    let mut anew: Vec<(usize, u16)> = Vec::new();
    for &job in order {
        let Some(parts) = walked.given(job) else {
            continue;
        };
        let kind = kind_of(problem, parts);
        let of = &problem.jobs[job];
        let stays = of.held_gpus() == request(of) && kind_of(problem, &of.present) == kind;
        if stays && room.can_keep(job) {
            room.keep(job);
        } else {
            anew.push((job, kind?));
        }
    }
    let mut placed = anew.into_iter();
    placed
        .all(|(job, kind)| room.place_on(job, kind, request(&problem.jobs[job]), style))
        .then_some(room)
}

fn kind_of(problem: &Problem, parts: &[Part]) -> Option<u16> {
    let first = parts.first()?;
    Some(problem.nodes[first.node as usize].kind)
}
