//! The same bytes in both directions: through plain TCP, in frames, and as push and pull between
//! one worker and one PS shard with its update.

use super::{SECRET, SHARD, WORKER, median, process_cpu, sgd, start_shard};
use muster_comm::assign::ParameterPiece;
use muster_comm::wire::metadata::{ConnectionPurpose, Hello, StepStats};
use muster_comm::wire::{Connection, FrameKind, WireError};
use muster_compute::pages;
use muster_model::id::JobId;
use muster_model::spec;
use muster_training::checkpoint::Contents;
use muster_training::document;
use muster_training::worker::{Reply, ShardAddress, Shards, first_view};
use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Instant;
use uuid::Uuid;

/// Number of times that connections are opened again. The placement of their buffers and threads
/// matters more than the measured effect, and stays the same for the life of a connection.
const ANEW: usize = 7;

pub fn rows() -> Vec<String> {
    [1, 16, 64].into_iter().map(row).collect()
}

fn row(megabytes: usize) -> String {
    let all: Vec<RoundMedians> = (0..ANEW).map(|_| measure(megabytes)).collect();
    let rates = all
        .iter()
        .map(|of| 2.0 * (megabytes << 20) as f64 / of.seconds[0] / 1e9);
    let rate = median(rates.collect());
    let mut row = format!("{megabytes:>10} {rate:>10.2}");
    for side in 1..4 {
        let shares = all.iter().map(|of| of.seconds[0] / of.seconds[side]);
        let cpus = all.iter().map(|of| of.cpu[side] / of.cpu[0]);
        let (share, cpu) = (median(shares.collect()), median(cpus.collect()));
        row.push_str(&format!(" {share:>8.2} {cpu:>10.2}"));
    }
    let shares = all.iter().map(|of| of.seconds[0] / of.seconds[1]);
    let (low, high) = shares.fold((f64::INFINITY, 0.0_f64), |(low, high), share| {
        (low.min(share), high.max(share))
    });
    row.push_str(&format!("   frames {low:.2} to {high:.2}"));
    row
}

/// Medians of a round, for plain TCP, frames, SGD and Adam.
struct RoundMedians {
    seconds: [f64; 4],
    cpu: [f64; 4],
}

fn measure(megabytes: usize) -> RoundMedians {
    let size = (megabytes << 20) / 4;
    let mut bare = TcpBaseline::start(size);
    let mut frames = Frames::start(size);
    let mut with_sgd = Link::start(size, sgd());
    let mut with_adam = Link::start(
        size,
        spec::Optimizer::Adam {
            learning_rate: 0.1,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
            decoupled: false,
        },
    );
    let sides: [&mut dyn FnMut(); 4] = [
        &mut || bare.round(),
        &mut || frames.round(),
        &mut || with_sgd.round(),
        &mut || with_adam.round(),
    ];
    let rounds = (512 / megabytes).clamp(12, 100);
    let mut seconds: [Vec<f64>; 4] = Default::default();
    let mut cpu: [Vec<f64>; 4] = Default::default();
    for round in 0..rounds {
        for turn in 0..sides.len() {
            // In alternating directions, so that no side always follows the same one.
            let at = match round % 2 {
                0 => turn,
                _ => sides.len() - 1 - turn,
            };
            let (began, before) = (Instant::now(), process_cpu());
            sides[at]();
            // The first rounds touch new memory and grow socket buffers.
            if round >= rounds / 4 {
                seconds[at].push(began.elapsed().as_secs_f64());
                cpu[at].push(process_cpu() - before);
            }
        }
    }
    RoundMedians {
        seconds: seconds.map(median),
        cpu: cpu.map(median),
    }
}

pub fn say(rows: &[String]) {
    println!(
        "\nthere and back over loopback: bare, in frames, push + pull with one shard; as shares of bare, medians of {ANEW} times that all are made anew"
    );
    println!(
        "{:>10} {:>10} {:>8} {:>10} {:>8} {:>10} {:>8} {:>10}",
        "MB/way", "bare GB/s", "frames", "frames CPU", "SGD", "SGD CPU", "Adam", "Adam CPU"
    );
    println!("{}", rows.join("\n"));
}

/// The bytes through TCP, by vectored writes and reads into a permanent buffer; with the socket
/// options of the parameter exchange, including no pacing.
struct TcpBaseline {
    stream: TcpStream,
    values: Vec<f32>,
}

impl TcpBaseline {
    fn start(size: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("the other side");
            set_up(&stream);
            let mut values: Vec<f32> = pages::zeros(size);
            while stream
                .read_exact(bytemuck::cast_slice_mut(&mut values))
                .is_ok()
            {
                if write(&mut stream, &values).is_err() {
                    return;
                }
            }
        });
        let stream = TcpStream::connect(address).expect("loopback");
        set_up(&stream);
        Self {
            stream,
            values: pages::zeros(size),
        }
    }

    fn round(&mut self) {
        write(&mut self.stream, &self.values).expect("send");
        self.stream
            .read_exact(bytemuck::cast_slice_mut(&mut self.values))
            .expect("receive");
    }
}

/// Like [`TcpBaseline`], in frames of the parameter exchange.
struct Frames {
    connection: Connection,
    values: Vec<f32>,
}

impl Frames {
    fn start(size: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address");
        thread::spawn(move || {
            let (stream, _) = listener.accept().expect("the other side");
            let mut connection = Connection::new(stream).expect("options");
            let mut values = pages::zeros(size);
            while receive(&mut connection, &mut values).is_ok() {
                let sent = connection.send(FrameKind::Parameters, 0, &[], &[&values]);
                if sent.is_err() {
                    return;
                }
            }
        });
        let stream = TcpStream::connect(address).expect("loopback");
        Self {
            connection: Connection::new(stream).expect("options"),
            values: pages::zeros(size),
        }
    }

    fn round(&mut self) {
        let sent = self
            .connection
            .send(FrameKind::Push, 0, &[], &[&self.values]);
        sent.expect("send");
        receive(&mut self.connection, &mut self.values).expect("receive");
    }
}

fn receive(connection: &mut Connection, values: &mut [f32]) -> Result<(), WireError> {
    let header = connection.receive()?;
    connection.receive_payload(header, &mut [values])
}

/// Sets the options, which belong to the socket and remain after the duplicate is closed.
fn set_up(stream: &TcpStream) {
    let duplicate = stream.try_clone().expect("a descriptor");
    drop(Connection::new(duplicate).expect("options"));
}

fn write(stream: &mut TcpStream, values: &[f32]) -> io::Result<()> {
    let mut slices: &mut [IoSlice<'_>] = &mut [IoSlice::new(bytemuck::cast_slice(values))];
    while !slices.is_empty() {
        let count = stream.write_vectored(slices)?;
        IoSlice::advance_slices(&mut slices, count);
    }
    Ok(())
}

/// Connection of a worker to a shard, without a model.
struct Link {
    shards: Shards,
    gradients: Vec<f32>,
    parameters: Vec<f32>,
    step: u64,
}

impl Link {
    fn start(size: usize, optimizer: spec::Optimizer) -> Self {
        let address = start_shard(document::constant(&optimizer), size, 1);
        let hello = Hello {
            job_id: JobId(Uuid::nil()),
            secret: SECRET.to_owned(),
            task_id: WORKER,
            guest: ConnectionPurpose::Chief,
            to: None,
            says_held: false,
            plain_statistics: false,
        };
        let addresses: [ShardAddress; 1] = [(SHARD, address)];
        let mut shards =
            Shards::join(&addresses, size, &hello).expect("the shard lets its worker in");
        let contents = Contents {
            parameters: vec![0.0; size],
            state: vec![vec![0.0; size]; document::state_planes(&optimizer).len()],
            extras: Vec::new(),
        };
        let all = ParameterPiece {
            offset: 0,
            len: size,
        };
        let view = first_view(1, vec![WORKER], &addresses, &[all]);
        shards
            .begin(view, 0, 0, &contents)
            .expect("the shard takes its content");
        Self {
            shards,
            gradients: vec![0.5; size],
            parameters: vec![0.0; size],
            step: 0,
        }
    }

    fn round(&mut self) {
        let (gradients, parameters) = (&self.gradients, &mut self.parameters);
        let reply = self.shards.push_pull(
            self.step,
            StepStats::default(),
            gradients,
            parameters,
            &|| true,
        );
        assert!(matches!(reply, Ok(Reply::Parameters { .. })));
        self.step += 1;
    }
}
