//! A view changes during training with real processes: one is killed in an all-reduce, one joins
//! later.
//!
//! The test is the coordinator: it runs a [`Gathering`] behind a socket with lines of JSON. The
//! members are this test program itself, started again.

#![expect(clippy::disallowed_methods, reason = "tests wait with a time limit")]

use muster_comm::collective::{AlgorithmChoice, CollectiveGroup};
use muster_comm::fabric::{
    Coordinator, Credentials, FabricOptions, Gathering, GroupView, MemberReport, PeerPort,
};
use muster_model::id::{JobId, TaskId};
use rustix::process::{Pid, Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

const FLOATS: usize = 4 << 20;
const STEPS: u64 = 12;
/// Step in whose all-reduce a member is killed; a new member is started after it.
const DEATH_STEP: u64 = 4;
const VICTIM: u32 = 2;
const NEWCOMER: u32 = 9;

/// Settings of a member, passed in its environment.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct MemberSettings {
    id: u32,
    coordinator: SocketAddr,
    folder: String,
    shared_memory: bool,
    /// Time from the start of the all-reduce of [`DEATH_STEP`] to its own end.
    dies_after_us: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum Call {
    Next(MemberReport),
    SomeoneWaits,
    /// Result of a step: contributions and duration of the all-reduce.
    Step {
        id: u32,
        step: u64,
        contributions: usize,
        took_ms: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
enum CoordinatorAnswer {
    View(GroupView),
    Refused(String),
    Waits(bool),
    Noted,
}

/// Member's connection to the coordinator.
struct CoordinatorConnection(Mutex<BufReader<TcpStream>>);

impl CoordinatorConnection {
    fn call(&self, call: &Call) -> CoordinatorAnswer {
        let mut stream = self.0.lock().unwrap();
        let line = serde_json::to_string(call).unwrap() + "\n";
        stream.get_mut().write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        serde_json::from_str(&answer).unwrap()
    }
}

impl Coordinator for CoordinatorConnection {
    fn next_view(&self, report: MemberReport) -> Result<GroupView, String> {
        match self.call(&Call::Next(report)) {
            CoordinatorAnswer::View(view) => Ok(view),
            CoordinatorAnswer::Refused(why) => Err(why),
            other => panic!("{other:?}"),
        }
    }

    fn someone_waits(&self) -> bool {
        matches!(
            self.call(&Call::SomeoneWaits),
            CoordinatorAnswer::Waits(true)
        )
    }
}

fn task(number: u32) -> TaskId {
    TaskId(Uuid::from_u128(number.into()))
}

fn number(task: TaskId) -> u32 {
    task.0.as_u128() as u32
}

/// Contribution of member `id` to step `step`: integers, so that sums are exact.
fn value(id: u32, step: u64, i: usize) -> f32 {
    ((i % 1_021) as u64 * u64::from(id + 1) + step * 17) as f32
}

/// Every member sends its id and step to rank 0; data of a sum would differ from these. A lost
/// member may end the exchange.
fn gather(group: &mut CollectiveGroup, id: u32, step: u64) {
    let (rank, members) = (group.rank(), group.view().members.clone());
    let mut word = [id as f32, step as f32];
    if rank > 0 {
        group.carry((rank, 0), &mut word).unwrap();
        return;
    }
    for (from, member) in members.iter().enumerate().skip(1) {
        if !group.carry((from, 0), &mut word).unwrap() {
            return;
        }
        assert_eq!(word, [number(member.id) as f32, step as f32]);
    }
}

/// Not a test by itself: runs a member if the environment contains its settings.
#[test]
fn member() {
    let Ok(orders) = std::env::var("MUSTER_TEST_ELASTIC_MEMBER") else {
        return;
    };
    let orders: MemberSettings = serde_json::from_str(&orders).unwrap();
    let stream = TcpStream::connect(orders.coordinator).unwrap();
    stream.set_nodelay(true).unwrap();
    let remote = Arc::new(CoordinatorConnection(Mutex::new(BufReader::new(stream))));
    let credentials = Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "cd".repeat(32),
        id: task(orders.id),
        attempt: 1,
    };
    let port = PeerPort::bind("127.0.0.1", Some(Path::new(&orders.folder)), credentials).unwrap();
    let options = FabricOptions {
        shared_memory: orders.shared_memory,
        ..FabricOptions::default()
    };
    let coordinator = Arc::clone(&remote);
    let mut group = CollectiveGroup::start(
        port,
        coordinator,
        FLOATS,
        AlgorithmChoice::Fastest,
        false,
        options,
    )
    .unwrap();
    // The parameters: the number of their updates, and the values.
    let mut step = [0.0];
    let mut parameters = vec![0.5; 1_003];
    loop {
        if group.between_steps().unwrap() {
            group
                .welcome(&mut [&mut step, &mut parameters[..]])
                .unwrap();
        }
        let now = step[0] as u64;
        if now == STEPS {
            return;
        }
        for (i, gradient) in group.gradients_mut().iter_mut().enumerate() {
            *gradient = value(orders.id, now, i);
        }
        if let (Some(delay), DEATH_STEP) = (orders.dies_after_us, now) {
            thread::spawn(move || {
                thread::sleep(Duration::from_micros(delay));
                kill_process(getpid(), Signal::KILL)
            });
        }
        let began = Instant::now();
        let reduced = group.all_reduce(0..FLOATS).unwrap();
        let took_ms = began.elapsed().as_millis() as u64;
        let ids: Vec<u32> = group
            .view()
            .members
            .iter()
            .map(|member| number(member.id))
            .collect();
        for (i, sum) in group.sums().iter().enumerate() {
            // A result from a member that had completed it before the loss contains the victim's
            // part.
            let summed: &[u32] = if reduced.contributions == ids.len() {
                &ids
            } else {
                &[0, 1, VICTIM, 3]
            };
            let expected = summed.iter().map(|&id| value(id, now, i)).sum::<f32>();
            assert!(*sum == expected, "step {now}, float {i}: {reduced:?}");
        }
        if group.is_unbroken() {
            gather(&mut group, orders.id, now);
        }
        for parameter in &mut parameters {
            *parameter += group.sums()[1] + reduced.contributions as f32;
        }
        step[0] += 1.0;
        // Every member has applied the same updates; the new member has those before its start as
        // well.
        assert!(
            parameters
                .iter()
                .all(|parameter| *parameter == parameters[0])
        );
        remote.call(&Call::Step {
            id: orders.id,
            step: now,
            contributions: reduced.contributions,
            took_ms,
        });
        // Leaves time for the new member to join before the end.
        thread::sleep(Duration::from_millis(20));
    }
}

#[derive(Default)]
struct CompletedSteps(BTreeMap<(u64, u32), (usize, u64)>);

struct ElasticCoordinator {
    gathering: Mutex<Gathering>,
    formed: Condvar,
    steps: Mutex<CompletedSteps>,
}

impl ElasticCoordinator {
    fn serve(&self, stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let mut lines = BufReader::new(stream);
        let mut line = String::new();
        while matches!(lines.read_line(&mut line), Ok(1..)) {
            let answer = match serde_json::from_str(&line).unwrap() {
                Call::Next(report) => self.next(report),
                Call::SomeoneWaits => {
                    CoordinatorAnswer::Waits(self.gathering.lock().unwrap().someone_waits())
                }
                Call::Step {
                    id,
                    step,
                    contributions,
                    took_ms,
                } => {
                    let mut steps = self.steps.lock().unwrap();
                    steps.0.insert((step, id), (contributions, took_ms));
                    CoordinatorAnswer::Noted
                }
            };
            let answer = serde_json::to_string(&answer).unwrap() + "\n";
            if lines.get_mut().write_all(answer.as_bytes()).is_err() {
                return;
            }
            line.clear();
        }
    }

    fn next(&self, report: MemberReport) -> CoordinatorAnswer {
        let (id, left) = (report.member.id, report.view);
        let mut gathering = self.gathering.lock().unwrap();
        if let Err(why) = gathering.report(report) {
            return CoordinatorAnswer::Refused(why);
        }
        if gathering.next_view().is_some() {
            self.formed.notify_all();
        }
        loop {
            let view = gathering.view();
            if view.number > left && view.rank_of(id).is_some() {
                return CoordinatorAnswer::View(view.clone());
            }
            gathering = self.formed.wait(gathering).unwrap();
        }
    }
}

fn start(orders: &MemberSettings) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "elastic::member",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(
            "MUSTER_TEST_ELASTIC_MEMBER",
            serde_json::to_string(orders).unwrap(),
        )
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Members 0, 1, 2 and 3; 2 is killed during a step, 9 joins later.
fn story(shared_memory: bool, dies_after_us: u64) {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut orders = MemberSettings {
        id: 0,
        coordinator: listener.local_addr().unwrap(),
        folder: folder.path().to_str().unwrap().to_owned(),
        shared_memory,
        dies_after_us: None,
    };
    let server = Arc::new(ElasticCoordinator {
        gathering: Mutex::new(Gathering::new(4)),
        formed: Condvar::new(),
        steps: Mutex::default(),
    });
    let desk = Arc::clone(&server);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let desk = Arc::clone(&desk);
            thread::spawn(move || desk.serve(stream.unwrap()));
        }
    });
    let mut members = Vec::new();
    for id in 0..4 {
        orders.id = id;
        orders.dies_after_us = (id == VICTIM).then_some(dies_after_us);
        members.push((id, start(&orders)));
    }
    // The new member is started after the survivors have completed the step of the loss.
    let deadline = Instant::now() + Duration::from_secs(100);
    while !server
        .steps
        .lock()
        .unwrap()
        .0
        .contains_key(&(DEATH_STEP + 1, 0))
    {
        assert!(Instant::now() < deadline, "the survivors do not go on");
        for (id, member) in &mut members {
            let ended = member.try_wait().unwrap();
            assert!(*id == VICTIM || ended.is_none(), "member {id}: {ended:?}");
        }
        thread::sleep(Duration::from_millis(5));
    }
    (orders.id, orders.dies_after_us) = (NEWCOMER, None);
    members.push((NEWCOMER, start(&orders)));
    for (id, member) in &mut members {
        let pid = Pid::from_child(member);
        while member.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                let _ = kill_process(pid, Signal::KILL);
                panic!("member {id} does not end");
            }
            thread::sleep(Duration::from_millis(5));
        }
        let ended = member.wait().unwrap();
        assert_eq!(ended.success(), *id != VICTIM, "member {id}: {ended}");
    }
    check(&server.steps.lock().unwrap().0);
}

fn check(steps: &BTreeMap<(u64, u32), (usize, u64)>) {
    let mut last_four = 0;
    let mut joined_at = None;
    for step in 0..STEPS {
        let of_step: Vec<_> = steps.range((step, 0)..(step + 1, 0)).collect();
        let contributions: Vec<usize> = of_step.iter().map(|(_, (c, _))| *c).collect();
        let members: Vec<u32> = of_step.iter().map(|((_, id), _)| *id).collect();
        assert!(
            contributions.windows(2).all(|pair| pair[0] == pair[1]),
            "step {step}: {of_step:?}"
        );
        if members.contains(&NEWCOMER) {
            joined_at.get_or_insert(step);
        }
        if step < DEATH_STEP {
            assert_eq!(contributions, [4; 4], "step {step}");
        } else if joined_at.is_none() {
            // The step of the loss itself may have been complete before it.
            assert_eq!(
                contributions.len(),
                3 + usize::from(members.contains(&VICTIM))
            );
            if contributions[0] == 4 {
                last_four = step;
            }
        } else {
            assert_eq!(
                (members, contributions),
                (vec![0, 1, 3, NEWCOMER], vec![4; 4])
            );
        }
    }
    assert!(
        last_four <= DEATH_STEP,
        "the death took effect within its step"
    );
    assert!(joined_at.is_some(), "the newcomer took part");
    let slowest = steps.iter().map(|(_, (_, took))| *took).max();
    println!("longest all-reduce, the change of view within it: {slowest:?} ms");
}

#[test]
fn survivors_complete_the_step_over_tcp_and_a_new_member_joins() {
    for dies_after_us in [0, 3_000] {
        story(false, dies_after_us);
    }
}

#[test]
fn survivors_complete_the_step_over_shm_and_a_new_member_joins() {
    for dies_after_us in [0, 1_000] {
        story(true, dies_after_us);
    }
}
