//! A script under `torchrun` whose rendezvous is the task set of its job. A change of size and the
//! loss of an agent restart worker processes; the agents of the remaining tasks continue.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{log, no_gpu_was_held_twice};
use muster_e2e::tools::{path_with, tool};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::view::SampleView;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

const STEPS: i32 = 700;

/// Fits y = 3x by full batches, so the result depends on the number of steps and on nothing else.
/// Writes a line when the first step of a start is done.
const SCRIPT: &str = r#"
import os, time
import torch, torch.distributed as dist
import muster

job = muster.init(handle_sigterm=False)
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
x = torch.linspace(-1, 1, 60).reshape(-1, 1)
linear = torch.nn.Linear(1, 1, bias=False)
torch.nn.init.zeros_(linear.weight)
model = torch.nn.parallel.DistributedDataParallel(linear)
optimizer = torch.optim.SGD(model.parameters(), lr=0.004)
path, first = job.checkpoint_dir / "newest.pt", 0
if path.exists():
    state = torch.load(path)
    model.module.load_state_dict(state["model"])
    first = state["step"]
for step in range(first + 1, STEPS + 1):
    mine = x[rank::world]
    loss = ((model(mine) - 3 * mine) ** 2).sum() * world / len(x)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == first + 1:
        with open(job.checkpoint_dir / "starts.txt", "a") as starts:
            print(world, rank, first, os.getppid(), int(time.time() * 1000), file=starts)
    job.report(step, loss=loss.item())
    if rank == 0 and step % 10 == 0:
        torch.save({"model": model.module.state_dict(), "step": step}, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)
        job.checkpointed(step)
    time.sleep(0.05)
if rank == 0:
    print("weight", model.module.weight.item())
dist.destroy_process_group()
"#;

/// First step of a start of one worker process.
#[derive(Debug, Clone, PartialEq)]
struct Start {
    world: u32,
    rank: u32,
    from_step: u64,
    agent: u32,
    at_ms: i64,
}

#[tokio::test]
async fn torchrun_job_changes_size_inside_its_agents() {
    let torch = tool("MUSTER_TORCH_PYTHON");
    let mut cluster = TestCluster::start(TestClusterOptions { nodes: 3, slots: 1 }).await;
    let script = SCRIPT.replace("STEPS", &STEPS.to_string());
    let document = serde_json::json!({
        "version": "muster/v1", "name": "elastic",
        "command": {
            "argv": ["python3", "-m", "torch.distributed.run", "train.py"], "elastic": "torchrun", "steps": STEPS,
            "env": { "PATH": path_with(&torch) }, "files": { "train.py": script },
        },
        "scale": { "workers": { "min": 2, "max": 2 } },
        "resources": { "worker": { "gpus": 1, "cpu_milli": 100, "memory_bytes": 1 << 30 } },
    });
    let job = cluster
        .client()
        .submit(&document, None)
        .await
        .expect("right");
    let job = job.id;
    until_steps(&cluster, job, 30).await;
    let two = newest(&cluster, job, 2);

    scale(&cluster, job, "3");
    let three = started(&cluster, job, 3, &two).await;
    assert_eq!(agents(&three)[..2], agents(&two)[..], "the same agents");
    assert!(three[0].from_step > 0, "from a checkpoint: {three:?}");
    until_steps(&cluster, job, three[0].from_step + 30).await;

    scale(&cluster, job, "1..2");
    let again = started(&cluster, job, 2, &three).await;
    assert_eq!(agents(&again), agents(&three)[..2], "the same agents");
    until_steps(&cluster, job, again[0].from_step + 30).await;

    kill(agents(&again)[1]);
    let alone = started(&cluster, job, 1, &again).await;
    assert_eq!(
        agents(&alone)[0],
        agents(&again)[0],
        "the first agent continues"
    );

    let done = cluster.succeeded(job).await;
    let text = log(&cluster, job, "worker-0").await;
    let weight = text.lines().find_map(|line| line.strip_prefix("weight "));
    let weight: f64 = weight.expect("printed").trim().parse().expect("a number");
    assert!(
        (weight - expected()).abs() < 1e-4,
        "{weight} but {}",
        expected()
    );
    let first_agents: BTreeSet<u32> = of_rank_0(&cluster, job);
    assert_eq!(first_agents.len(), 1, "one agent from beginning to end");
    assert_eq!(
        done.progress.map(|at| at.step),
        Some(STEPS.unsigned_abs().into())
    );
    series_is_continuous(&cluster, job).await;
    no_gpu_was_held_twice(&cluster, &[job]).await;
    cluster.down();
}

/// Returns the weight after all steps, each of which was done exactly once.
fn expected() -> f64 {
    let points = (0..60).map(|i| -1.0 + 2.0 * f64::from(i) / 59.0);
    let mean_square = points.map(|x| x * x).sum::<f64>() / 60.0;
    3.0 * (1.0 - (1.0 - 0.008 * mean_square).powi(STEPS))
}

fn scale(cluster: &TestCluster, job: JobId, range: &str) {
    drop(cluster.run(&["scale", &job.to_string(), range]));
}

fn kill(process: u32) {
    let killed = Command::new("kill")
        .args(["-KILL", &process.to_string()])
        .status();
    assert!(killed.expect("kill runs").success());
}

async fn until_steps(cluster: &TestCluster, job: JobId, step: u64) {
    cluster
        .until(job, "steps and a checkpoint", |job| {
            job.progress.as_ref().is_some_and(|at| at.step >= step)
        })
        .await;
}

/// Waits for the first steps of a new world of this size, and prints their delay.
async fn started(cluster: &TestCluster, job: JobId, world: u32, before: &[Start]) -> Vec<Start> {
    cluster
        .until(job, "a new size", |_| {
            let starts = newest(cluster, job, world);
            starts.len() == world as usize
                && starts.iter().all(|start| start.at_ms > before[0].at_ms)
        })
        .await;
    let starts = newest(cluster, job, world);
    let history = cluster.history(job).await;
    let mut placed = history.iter().filter_map(|entry| match entry.event {
        Event::JobPlaced { workers, .. } => Some((workers, entry.at)),
        _ => None,
    });
    let at = placed.rfind(|(workers, _)| *workers == world);
    let (_, at) = at.expect("the change of size");
    let decided_ms = i64::try_from(at.unix_timestamp_nanos() / 1_000_000).expect("of this era");
    let steps_ms = starts.iter().map(|start| start.at_ms - decided_ms).max();
    println!("{world} workers step {steps_ms:?} ms after the decision");
    starts
}

/// Returns the newest start of each rank of this world size, in the order of ranks.
fn newest(cluster: &TestCluster, job: JobId, world: u32) -> Vec<Start> {
    let all = starts(cluster, job).into_iter();
    let of_size = all.filter(|start| start.world == world);
    let newest: BTreeMap<u32, Start> = of_size.map(|start| (start.rank, start)).collect();
    newest.into_values().collect()
}

fn agents(starts: &[Start]) -> Vec<u32> {
    starts.iter().map(|start| start.agent).collect()
}

fn of_rank_0(cluster: &TestCluster, job: JobId) -> BTreeSet<u32> {
    let starts = starts(cluster, job).into_iter();
    let first = starts.filter(|start| start.rank == 0);
    first.map(|start| start.agent).collect()
}

fn starts(cluster: &TestCluster, job: JobId) -> Vec<Start> {
    let tenants = std::fs::read_dir(cluster.checkpoints()).expect("the checkpoint root");
    let files = tenants.flatten().filter_map(|tenant| {
        let path = tenant.path().join(job.to_string()).join("starts.txt");
        std::fs::read_to_string(path).ok()
    });
    let text: String = files.collect();
    text.lines().map(start).collect()
}

fn start(line: &str) -> Start {
    let numbers = line.split(' ').map(|word| word.parse().expect("a number"));
    let numbers: Vec<i64> = numbers.collect();
    let narrow = |place: usize| u32::try_from(numbers[place]).expect("small");
    Start {
        world: narrow(0),
        rank: narrow(1),
        from_step: numbers[2].unsigned_abs(),
        agent: narrow(3),
        at_ms: numbers[4],
    }
}

/// Checks that repeated steps replaced those of former workers, and that sizes are right.
async fn series_is_continuous(cluster: &TestCluster, job: JobId) {
    let series = cluster.client().progress(job, None, None).await;
    let samples: Vec<SampleView> = series.expect("a series").samples;
    assert!(samples.is_sorted_by_key(|one| one.sample.step));
    assert!(samples.is_sorted_by_key(|one| one.at), "{samples:#?}");
    let sizes: BTreeSet<u32> = samples.iter().map(|one| one.sample.workers).collect();
    assert_eq!(sizes, BTreeSet::from([1, 2, 3]), "speeds belong to sizes");
}
