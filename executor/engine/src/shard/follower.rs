//! A shard's line to the one that keeps its copy: whatever is applied goes there before any worker is answered.
//!
//! Nobody is answered and nothing else is done here meanwhile, so a follower has little time for a word. One that is silent for longer, or gone,
//! costs nobody anything but the copy: the shard goes on without one, says so in the job's history, and tries again now and then.

use super::exchange::Exchange;
use super::serve::Identity;
use super::state::State;
use super::tensors::{Factors, Tensors};
use crate::clock;
use crate::log;
use crate::wire::hello::{Guest, Hello};
use crate::wire::view::{Holder, Shipped, View};
use crate::wire::{Connection, Kind, WireError, greet};
use muster_model::id::TaskId;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// So many usual steps, and at least and at most so long, a follower may neither take nor say anything while it is expected to.
const STEPS_OF_SILENCE: u32 = 4;
const LEAST_SILENCE: Duration = Duration::from_secs(1);
const MOST_SILENCE: Duration = Duration::from_secs(10);

/// One that was given up is asked again after this time, or under another view.
const AGAIN: Duration = Duration::from_secs(10);

/// A shard's line to its follower.
#[derive(Debug)]
pub(super) struct Follower {
    /// The shard's own.
    identity: Identity,
    line: Option<Line>,
    /// Of one that was given up: who it is, under which view, and when.
    lost: Option<(TaskId, u64, Instant)>,
    again: Duration,
    /// When something was last to be sent, and how long that usually is apart.
    wanted: Option<Instant>,
    usual: Option<Duration>,
    /// For the job's history, until somebody takes them.
    notes: Vec<String>,
}

#[derive(Debug)]
struct Line {
    to: TaskId,
    /// In which the follower has the whole copy.
    layout: u64,
    connection: Connection,
}

impl Follower {
    pub fn of(identity: Identity) -> Self {
        Self {
            identity,
            line: None,
            lost: None,
            again: AGAIN,
            wanted: None,
            usual: None,
            notes: Vec::new(),
        }
    }

    /// How long the follower may be silent now, when something is to be sent to it.
    fn patience(&mut self) -> Duration {
        let now = clock::now();
        if let Some(before) = self.wanted.replace(now) {
            // A job that stood still for hours has no steps of hours.
            let apart = (now - before).min(MOST_SILENCE);
            self.usual = Some(self.usual.map_or(apart, |usual| (usual * 7 + apart) / 8));
        }
        self.usual.map_or(LEAST_SILENCE, |usual| {
            (usual * STEPS_OF_SILENCE).clamp(LEAST_SILENCE, MOST_SILENCE)
        })
    }

    /// Sends the sum, or everything where the follower is new; returns once it is safe there, or there is no follower. Whether this
    /// still is the shard that the copy is of.
    fn ship(
        &mut self,
        view: &View,
        to: &Holder,
        of: Shipped,
        sum: &[f32],
        tensors: &Tensors,
    ) -> bool {
        let patience = self.patience();
        let is_given_up = |(task, number, since): (TaskId, u64, Instant)| {
            (task, number) == (to.task_id, view.number) && since.elapsed() < self.again
        };
        if self.lost.is_some_and(is_given_up) {
            return true;
        }
        let sent = match self.line.take() {
            Some(line) if line.to == to.task_id && line.layout == of.layout => {
                go_on(line, &of, sum, patience)
            }
            other => {
                if let Some(mut line) = other {
                    // It may be gone already.
                    let _ = line.connection.send(Kind::Goodbye, 0, &[], &[]);
                }
                self.begin(view, to, of, tensors, patience)
            }
        };
        match sent {
            Ok(line) => self.kept(view, line),
            Err(WireError::Adopted) => {
                log::line(format_args!(
                    "PS shard {} goes on as this one by the chief's word: ends without an answer",
                    to.task_id
                ));
                return false;
            }
            Err(error) => self.given_up(view, to.task_id, &error),
        }
        true
    }

    fn kept(&mut self, view: &View, line: Line) {
        if self.lost.take().is_some() {
            let (own, other) = self.places(view, line.to);
            self.note(format!("{other} keeps a copy of {own} again"));
        }
        self.line = Some(line);
    }

    fn given_up(&mut self, view: &View, follower: TaskId, error: &WireError) {
        let error = log::chain(error);
        let is_news = self.lost.is_none();
        self.lost = Some((follower, view.number, clock::now()));
        let (own, other) = self.places(view, follower);
        let message = format!(
            "{other} keeps no copy of {own} any more ({error}); until one is kept again, the loss of {own} costs the job a restart from \
             its newest checkpoint"
        );
        // The log has every attempt.
        match is_news {
            true => self.note(message),
            false => log::line(message),
        }
    }

    /// This shard and another one by their places in the view.
    fn places(&self, view: &View, other: TaskId) -> (String, String) {
        let name = |task: TaskId| {
            let place = view.shards.iter().position(|held| held.task_id == task);
            place.map_or_else(|| format!("PS shard {task}"), |at| format!("PS shard {at}"))
        };
        (name(self.identity.task_id), name(other))
    }

    fn note(&mut self, message: String) {
        log::line(&message);
        self.notes.push(message);
    }

    fn begin(
        &self,
        view: &View,
        to: &Holder,
        of: Shipped,
        tensors: &Tensors,
        patience: Duration,
    ) -> Result<Line, WireError> {
        let hello = Hello {
            job_id: self.identity.job_id,
            secret: self.identity.secret.clone(),
            task_id: self.identity.task_id,
            guest: Guest::Primary,
            to: Some(to.task_id),
            says_held: false,
            plain_statistics: false,
        };
        let (mut connection, _) = greet(&to.address, &hello, patience)?;
        let whole = Shipped {
            pieces: view.pieces(self.identity.task_id).to_vec(),
            ..of
        };
        let parts = tensors.parts();
        send(&mut connection, Kind::Copy, &whole, &parts, patience)?;
        Ok(Line {
            to: to.task_id,
            layout: whole.layout,
            connection,
        })
    }
}

fn go_on(mut line: Line, of: &Shipped, sum: &[f32], patience: Duration) -> Result<Line, WireError> {
    send(&mut line.connection, Kind::Applied, of, &[sum], patience)?;
    Ok(line)
}

fn send(
    connection: &mut Connection,
    kind: Kind,
    shipped: &Shipped,
    payload: &[&[f32]],
    patience: Duration,
) -> Result<(), WireError> {
    // Of the time that a large copy takes nothing is said: it is on its way as long as some of it is taken.
    connection.give_up_sending(patience)?;
    let word = serde_json::to_vec(shipped).expect("plain data");
    connection.send(kind, 0, &word, payload)?;
    if !connection.wait_readable(patience)? {
        return Err(WireError::Silent(patience));
    }
    let header = connection.receive()?;
    match header.kind {
        Kind::Ready => Ok(()),
        _ => Err(connection.unexpected(header)),
    }
}

impl Exchange {
    /// Whether another process is this shard by now, so that nobody must be answered any more.
    pub(super) fn is_superseded(&self) -> bool {
        self.lock().superseded
    }

    /// What is to be told of copies since it was last asked for.
    pub(super) fn take_notes(&self) -> Vec<String> {
        let mut state = self.lock();
        let follower = state.follower.as_mut();
        follower.map_or_else(Vec::new, |follower| std::mem::take(&mut follower.notes))
    }

    /// What was just applied goes to whoever keeps the copy, if somebody does.
    pub(super) fn ship(&self, state: &mut State, sum: &[f32], factors: Factors) {
        let (Some(mut follower), Some(view)) = (state.follower.take(), state.view.clone()) else {
            return;
        };
        if let Some(to) = view.follower(self.me, self.host) {
            let Factors { scale, clip, rate } = factors;
            let shipped = Shipped {
                view: view.number,
                layout: view.layout,
                pieces: Vec::new(),
                version: state.version,
                updates: state.updates,
                hold: state.hold,
                clocks: state
                    .members
                    .iter()
                    .map(|member| (member.task, member.clock))
                    .collect(),
                factors: [scale, clip, rate].map(f32::to_bits),
            };
            let tensors = Arc::clone(&state.tensors);
            let tensors = tensors.read().expect("no update has panicked");
            if !follower.ship(&view, to, shipped, sum, &tensors) {
                state.superseded = true;
                state.broken = true;
            }
        }
        state.follower = Some(follower);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assign::Piece;
    use crate::optimizer::{Optimizer, Rule};
    use crate::shard::recipe::Recipe;
    use crate::wire::hello::{MAX_HELLO_BYTES, Welcome};
    use muster_model::id::JobId;
    use std::net::TcpListener;
    use std::thread;
    use uuid::Uuid;

    const LEN: usize = 1000;

    /// Takes copies, each on the next connection, and answers so much of what comes on each; then it is silent and keeps the line.
    fn follower(answers: &'static [usize]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let mut lines = Vec::new();
            for &answers in answers {
                let mut line = Connection::new(listener.accept().unwrap().0).unwrap();
                let soon = clock::now() + Duration::from_secs(60);
                line.receive_greeting(soon, MAX_HELLO_BYTES).unwrap();
                let welcome = serde_json::to_vec(&Welcome {
                    state_per_parameter: 0,
                    keeps_known: false,
                });
                line.send(Kind::Welcome, 0, &welcome.unwrap(), &[]).unwrap();
                for _ in 0..answers {
                    let header = line.receive().unwrap();
                    line.receive_meta(header).unwrap();
                    line.receive_bytes(header, 4 * LEN, &mut Vec::new())
                        .unwrap();
                    line.send(Kind::Ready, 0, &[], &[]).unwrap();
                }
                lines.push(line);
            }
            thread::park();
        });
        address
    }

    /// A follower that lives and says nothing, as one that is stopped, is given up soon, and the job hears of it; and it is asked again.
    #[test]
    fn a_silent_follower_is_given_up_told_of_and_asked_again() {
        let task = |number: u128| TaskId(Uuid::from_u128(number));
        let holder = |number, address: &str, pieces| Holder {
            task_id: task(number),
            address: address.to_owned(),
            pieces,
        };
        let whole = Piece {
            offset: 0,
            len: LEN,
        };
        let view = View {
            number: 1,
            revision: 1,
            layout: 1,
            workers: Vec::new(),
            shards: vec![
                holder(1, "", vec![whole]),
                holder(2, &follower(&[2, 1]), Vec::new()),
            ],
            before: Vec::new(),
        };
        let plain = Optimizer::new(Rule::Sgd {
            lr: 0.1,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        });
        let tensors = Recipe::weights(plain, LEN, 1).tensors(&[whole], false);
        let mut own = Follower::of(Identity {
            job_id: JobId(Uuid::nil()),
            task_id: task(1),
            secret: "s".to_owned(),
        });
        let ship = |own: &mut Follower, updates| {
            let of = Shipped {
                view: 1,
                layout: 1,
                pieces: Vec::new(),
                version: updates,
                updates,
                clocks: Vec::new(),
                hold: 0,
                factors: [0; 3],
            };
            assert!(own.ship(&view, &view.shards[1], of, &[0.5; LEN], &tensors));
            std::mem::take(&mut own.notes)
        };
        assert_eq!(ship(&mut own, 1), [""; 0]);
        assert_eq!(ship(&mut own, 2), [""; 0]);
        assert_eq!(own.patience(), LEAST_SILENCE, "steps were quick");
        let told = ship(&mut own, 3);
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("PS shard 1 keeps no copy of PS shard 0 any more"),
            "{told:?}"
        );
        assert_eq!(ship(&mut own, 4), [""; 0], "left alone for a while");
        own.again = Duration::ZERO;
        let told = ship(&mut own, 5);
        assert_eq!(told, ["PS shard 1 keeps a copy of PS shard 0 again"]);
    }
}
