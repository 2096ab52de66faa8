//! All-reduce of 100 MB between 2 and 4 processes of this machine. Measures the algorithm bandwidth
//! (bytes of one rank's gradients per second) of each fabric. Also measures gloo and Open MPI if
//! they are installed, alternating in the same run.
//!
//! `MUSTER_TORCH_PYTHON` names a Python with PyTorch for gloo; Open MPI needs `mpirun` and `mpicc`
//! in PATH. A missing side is left out. `MUSTER_BENCH_MB`, `MUSTER_BENCH_ROUNDS` and
//! `MUSTER_BENCH_TURNS` set the size, the rounds of a side at a time, and the number of
//! alternations.

#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use muster_comm::collective::{self, AllReduceAlgorithm, all_reduce_arena};
use muster_comm::fabric::{
    Arena, Credentials, Fabric, FabricOptions, GroupView, PeerPort, ViewMember,
};
use muster_comm::wire::Connection;
use muster_compute::pages;
use muster_model::id::{JobId, TaskId};
use std::collections::BTreeMap;
use std::fs;
use std::io::{IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Implementation that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AllReduceVariant {
    /// An arena over TCP links.
    Tcp(AllReduceAlgorithm),
    /// An arena in shared memory: sums computed from the gradients of all ranks.
    Arena,
    /// Like `Arena`, and each rank copies the sums to its own memory.
    ArenaCopied,
    /// Private memory over rings in shared memory.
    Rings(AllReduceAlgorithm),
    Gloo,
    MpiTcp,
    MpiShared,
    /// The bytes of a ring through plain TCP sockets by vectored writes, without additions: the
    /// limit of any ring.
    BareTcp,
    /// One thread copies the bytes once, as a measure of the machine.
    Copy,
}

const SIDES: [(&str, AllReduceVariant); 10] = [
    (
        "muster tcp ring",
        AllReduceVariant::Tcp(AllReduceAlgorithm::Ring),
    ),
    (
        "muster tcp halving",
        AllReduceVariant::Tcp(AllReduceAlgorithm::HalvingDoubling),
    ),
    ("muster shm arena", AllReduceVariant::Arena),
    ("muster shm arena+copy", AllReduceVariant::ArenaCopied),
    (
        "muster shm rings",
        AllReduceVariant::Rings(AllReduceAlgorithm::Ring),
    ),
    ("gloo", AllReduceVariant::Gloo),
    ("openmpi tcp", AllReduceVariant::MpiTcp),
    ("openmpi shm", AllReduceVariant::MpiShared),
    ("bare tcp ring", AllReduceVariant::BareTcp),
    ("memory copy", AllReduceVariant::Copy),
];

fn main() {
    if let Ok(side) = std::env::var("MUSTER_BENCH_SIDE") {
        member(&side);
        return;
    }
    let floats = number("MUSTER_BENCH_MB", 100) * 1_000_000 / 4;
    let (rounds, turns) = (
        number("MUSTER_BENCH_ROUNDS", 8),
        number("MUSTER_BENCH_TURNS", 3),
    );
    let folder = tempfile::tempdir().expect("a folder");
    let mpi = mpi_program(folder.path());
    let only = std::env::var("MUSTER_BENCH_ONLY").unwrap_or_default();
    println!("all-reduce of {} MB, GB/s", floats * 4 / 1_000_000);
    for ranks in [2, 4].into_iter().filter(|ranks| wanted(*ranks)) {
        let mut seconds: BTreeMap<usize, Vec<f64>> = BTreeMap::new();
        for turn in 0..turns {
            for (at, (name, side)) in SIDES.iter().enumerate() {
                if !name.contains(&only) {
                    continue;
                }
                let meeting = folder.path().join(format!("{ranks}-{turn}-{at}"));
                fs::create_dir(&meeting).expect("a folder");
                let took = run(*side, name, ranks, floats, rounds, &meeting, mpi.as_deref());
                // The first rounds touch new memory and grow socket buffers.
                let took = took.into_iter().flatten().skip(2);
                seconds.entry(at).or_default().extend(took);
            }
        }
        println!(
            "{ranks} processes{:>20} {:>8} {:>8}",
            "median", "best", "worst"
        );
        for (at, (name, _)) in SIDES.iter().enumerate() {
            let Some(seconds) = seconds.get_mut(&at).filter(|seconds| !seconds.is_empty()) else {
                continue;
            };
            seconds.sort_by(f64::total_cmp);
            let [median, best, worst] = [seconds.len() / 2, 0, seconds.len() - 1]
                .map(|at| floats as f64 * 4.0 / seconds[at] / 1e9);
            println!("{name:>24} {median:>7.2} {best:>8.2} {worst:>8.2}");
        }
    }
}

/// Whether this number of processes is measured; `MUSTER_BENCH_RANKS` selects one.
fn wanted(ranks: usize) -> bool {
    number("MUSTER_BENCH_RANKS", ranks) == ranks
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).map_or(default, |text| text.parse().expect("a number"))
}

/// Runs one side. Returns the seconds of each round; `None` if the side is not available.
fn run(
    side: AllReduceVariant,
    name: &str,
    ranks: usize,
    floats: usize,
    rounds: usize,
    meeting: &Path,
    mpi: Option<&Path>,
) -> Option<Vec<f64>> {
    let sizes = [floats.to_string(), rounds.to_string()];
    let members: Vec<Child> = match side {
        AllReduceVariant::Gloo => {
            let python = std::env::var("MUSTER_TORCH_PYTHON").ok()?;
            let script = include_str!("peers/allreduce.py");
            let members = (0..ranks).map(|rank| {
                spawn(
                    Command::new(&python)
                        .args(["-c", script])
                        .args(&sizes)
                        .env("RANK", rank.to_string())
                        .env("WORLD_SIZE", ranks.to_string())
                        .env("MEETING", meeting.join("gloo")),
                )
            });
            members.collect()
        }
        AllReduceVariant::MpiTcp | AllReduceVariant::MpiShared => {
            let btl = if side == AllReduceVariant::MpiTcp {
                "tcp,self"
            } else {
                "vader,self"
            };
            vec![spawn(
                Command::new("mpirun")
                    .args([
                        "--allow-run-as-root",
                        "--oversubscribe",
                        "--bind-to",
                        "none",
                    ])
                    .args(["--mca", "pml", "ob1", "--mca", "btl", btl])
                    .args(["-n", &ranks.to_string()])
                    .arg(mpi?)
                    .args(&sizes),
            )]
        }
        AllReduceVariant::Copy => vec![own(name, 0, 1, meeting, &sizes)],
        _ => (0..ranks)
            .map(|rank| own(name, rank, ranks, meeting, &sizes))
            .collect(),
    };
    let mut seconds = Vec::new();
    for member in members {
        let output = member.wait_with_output().expect("a member's output");
        assert!(output.status.success(), "{name}: {}", output.status);
        let text = String::from_utf8_lossy(&output.stdout);
        seconds.extend(
            text.lines()
                .filter_map(|line| line.trim().parse::<f64>().ok()),
        );
    }
    Some(seconds)
}

fn own(name: &str, rank: usize, ranks: usize, meeting: &Path, sizes: &[String]) -> Child {
    spawn(
        Command::new(std::env::current_exe().expect("this program"))
            .env("MUSTER_BENCH_SIDE", name)
            .env("RANK", rank.to_string())
            .env("WORLD_SIZE", ranks.to_string())
            .env("MEETING", meeting)
            .env("SIZES", sizes.join(" ")),
    )
}

fn spawn(command: &mut Command) -> Child {
    command
        .stdout(Stdio::piped())
        .spawn()
        .expect("a member starts")
}

/// Builds the MPI program for this run; `None` without Open MPI.
fn mpi_program(folder: &Path) -> Option<PathBuf> {
    let source = folder.join("allreduce.c");
    fs::write(&source, include_str!("peers/allreduce.c")).expect("a file");
    let program = folder.join("allreduce");
    let built = Command::new("mpicc")
        .args(["-O2", "-o"])
        .args([&program, &source])
        .status();
    built
        .is_ok_and(|status| status.success())
        .then_some(program)
}

/// Runs one rank of one of the engine's sides.
fn member(side: &str) {
    let rank = number("RANK", 0);
    let ranks = number("WORLD_SIZE", 1);
    let meeting = PathBuf::from(std::env::var("MEETING").expect("a folder"));
    let sizes = std::env::var("SIZES").expect("sizes");
    let mut sizes = sizes.split(' ').map(|size| size.parse().expect("a size"));
    let (floats, rounds): (usize, usize) =
        (sizes.next().expect("floats"), sizes.next().expect("rounds"));
    let (_, side) = SIDES
        .iter()
        .find(|(name, _)| *name == side)
        .expect("a side");
    if *side == AllReduceVariant::Copy {
        let (mut from, mut to): (Vec<f32>, Vec<f32>) = (pages::zeros(floats), pages::zeros(floats));
        from.fill(1.0);
        for _ in 0..rounds {
            let began = Instant::now();
            to.copy_from_slice(std::hint::black_box(&from));
            println!("{}", began.elapsed().as_secs_f64());
            std::hint::black_box(&to);
        }
        return;
    }
    if *side == AllReduceVariant::BareTcp {
        bare_ring(&meeting, rank, ranks, floats, rounds);
        return;
    }
    let credentials = Credentials {
        job_id: JobId(Uuid::nil()),
        secret: "ef".repeat(32),
        id: TaskId(Uuid::from_u128(rank as u128)),
        attempt: 1,
    };
    let port = PeerPort::bind("127.0.0.1", Some(&meeting), credentials).expect("a port");
    let view = GroupView {
        number: 1,
        members: meet(&meeting, ranks, &port.member()),
    };
    let options = FabricOptions {
        shared_memory: !matches!(side, AllReduceVariant::Tcp(_)),
        ..FabricOptions::default()
    };
    let mut fabric = Fabric::join(&port, view, &options).expect("the view");
    let mut arena = Arena::new(floats).expect("an arena");
    let mut private: Vec<f32> = pages::zeros(floats);
    let mut own: Vec<f32> = pages::zeros(floats);
    if !matches!(side, AllReduceVariant::Rings(_)) {
        fabric.share(&mut arena).expect("the arena is shared");
    }
    for round in 0..rounds {
        // As in a backward pass, the core that publishes the gradients writes them first.
        match side {
            AllReduceVariant::Rings(_) => own.fill(1.0 + round as f32),
            _ => arena.gradients_mut().fill(1.0 + round as f32),
        }
        collective::barrier(fabric.mesh()).expect("all are there");
        let began = Instant::now();
        match *side {
            AllReduceVariant::Rings(algorithm) => {
                let groups = fabric.groups().to_vec();
                collective::all_reduce(fabric.mesh(), algorithm, &groups, &own, &mut private)
                    .expect("a sum");
            }
            AllReduceVariant::Tcp(algorithm) => {
                all_reduce_arena(&mut fabric, &mut arena, 0..floats, algorithm).expect("a sum");
            }
            _ => {
                all_reduce_arena(&mut fabric, &mut arena, 0..floats, AllReduceAlgorithm::Ring)
                    .expect("a sum");
                if *side == AllReduceVariant::ArenaCopied {
                    private.copy_from_slice(collective::sums(&fabric, &arena));
                }
            }
        }
        let took = began.elapsed().as_secs_f64();
        if rank == 0 {
            println!("{took}");
        }
        let sums: &[f32] = match side {
            AllReduceVariant::Rings(_) | AllReduceVariant::ArenaCopied => &private,
            _ => collective::sums(&fabric, &arena),
        };
        let expected = ranks as f32 * (1.0 + round as f32);
        assert!(sums.iter().all(|sum| *sum == expected), "a wrong sum");
    }
}

/// In each round this rank sends to the next one, and receives from the previous one, as many bytes
/// as in a ring all-reduce.
fn bare_ring(meeting: &Path, rank: usize, ranks: usize, floats: usize, rounds: usize) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let draft = meeting.join(format!("bare-draft-{rank}"));
    let address = listener.local_addr().expect("its address").to_string();
    fs::write(&draft, address).expect("a file");
    fs::rename(&draft, meeting.join(format!("bare-{rank}"))).expect("a file");
    let next = meeting.join(format!("bare-{}", (rank + 1) % ranks));
    let next = loop {
        match fs::read_to_string(&next) {
            Ok(address) => break TcpStream::connect(address).expect("loopback"),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    };
    let (mut before, _) = listener.accept().expect("the rank before");
    for stream in [&next, &before] {
        // The options belong to the socket and remain after the duplicate is closed.
        let duplicate = stream.try_clone().expect("a descriptor");
        drop(Connection::new(duplicate).expect("options"));
    }
    let bytes = floats * 4 / ranks * 2 * (ranks - 1);
    let (sent, mut got) = (vec![1u8; bytes], vec![0u8; bytes]);
    for _ in 0..rounds {
        // All ranks begin together: a byte passes the ring twice.
        for _ in 0..2 * ranks {
            (&next).write_all(&[1]).expect("send");
            before.read_exact(&mut [0]).expect("receive");
        }
        let began = Instant::now();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut rest: &mut [IoSlice<'_>] = &mut [IoSlice::new(&sent)];
                while !rest.is_empty() {
                    let count = (&next).write_vectored(rest).expect("send");
                    IoSlice::advance_slices(&mut rest, count);
                }
            });
            before.read_exact(&mut got).expect("receive");
        });
        if rank == 0 {
            println!("{}", began.elapsed().as_secs_f64());
        }
    }
}

/// Members find each other by files: writes the own one and waits for the others.
fn meet(folder: &Path, ranks: usize, me: &ViewMember) -> Vec<ViewMember> {
    let draft = folder.join(format!("{}.draft", me.id));
    let text = serde_json::to_string(me).expect("plain data");
    fs::write(&draft, text).expect("a file");
    fs::rename(&draft, folder.join(format!("{}.json", me.id))).expect("a file");
    (0..ranks as u128)
        .map(|rank| wait_for(folder, TaskId(Uuid::from_u128(rank))))
        .collect()
}

fn wait_for(folder: &Path, id: TaskId) -> ViewMember {
    let file = folder.join(format!("{id}.json"));
    loop {
        if let Ok(text) = fs::read_to_string(&file) {
            return serde_json::from_str(&text).expect("a member");
        }
        thread::sleep(Duration::from_millis(1));
    }
}
