//! A cluster of a slow and a fast kind of CPU slots. Two families of programs run there. One is
//! four times as fast on the fast kind, the other hardly faster. Both kinds are full, and the jobs
//! exchange their slots once both families are measured. Then the fast node is drained.

use muster_e2e::cluster::{TestCluster, TestClusterOptions};
use muster_e2e::story::{every_round_replays, no_gpu_was_held_twice};
use muster_model::event::Event;
use muster_model::id::JobId;
use muster_model::job::{AfterStop, JobPhase};
use muster_model::view::JobView;
use std::time::Duration;

const SLOW: &str = "node-1";
const FAST: &str = "fast";
/// Steps of a job that only measures its family.
const SHORT: u32 = 60;
/// More steps than the story waits for; the jobs then hurry to their end.
const LONG: u32 = 3_000;

/// Program that continues from its last step. A step takes `$SLOW_S` or `$FAST_S` seconds by the
/// speed of the node, and nothing once the file `$HURRY` exists.
const PROGRAM: &str = r#"
trap 'exit 0' TERM
n=$(cat $MUSTER_CHECKPOINT_DIR/step 2>/dev/null || echo 0)
echo begins at $n on a $NODE_SPEED node
case $NODE_SPEED in fast) step_s=$FAST_S;; *) step_s=$SLOW_S;; esac
while [ $n -lt $STEPS ]; do
  test -e $HURRY || sleep $step_s
  n=$((n + 1))
  echo $n > $MUSTER_CHECKPOINT_DIR/new && mv $MUSTER_CHECKPOINT_DIR/new $MUSTER_CHECKPOINT_DIR/step
  test $((n % 5)) = 0 || test $n = $STEPS || continue
  echo muster: step=$n loss=1
  echo muster: checkpoint step=$n
done
"#;

#[tokio::test]
async fn fast_kind_goes_to_family_with_most_gain_until_drained() {
    let mut story = Story::begin().await;
    story.measure_both_families_on_both_kinds().await;
    // The job that gains little comes first and takes the fast node.
    let steady = story.submit("steady", LONG, "").await;
    story.runs_on(steady, FAST).await;
    let keen = story.submit("keen", LONG, "").await;
    story.runs_on(keen, SLOW).await;

    story.runs_on(keen, FAST).await;
    story.runs_on(steady, SLOW).await;
    let (of_keen, of_steady) = (story.moves(keen).await, story.moves(steady).await);
    let [why] = of_keen.as_slice() else {
        panic!("keen moved once: {of_keen:?}");
    };
    assert!(why.contains("moves from node-1 to fast"), "{why}");
    assert!(why.contains("cpu-fast makes it"), "{why}");
    assert!(why.contains("once the tasks of steady have ended"), "{why}");
    let [why] = of_steady.as_slice() else {
        panic!("steady moved once: {of_steady:?}");
    };
    assert!(why.contains("help another job more"), "{why}");
    assert!(why.contains("keen gains"), "{why}");
    let explained = story.cluster.run(&["explain", &keen.to_string()]);
    assert!(explained.contains("cpu-fast makes it"), "{explained}");
    for job in [keen, steady] {
        let resumed = story.resumed(job).await;
        assert!(
            matches!(resumed.as_slice(), [step] if *step > 0),
            "{resumed:?}"
        );
    }

    // The fast kind goes away: keen waits for the slow one and loses no step.
    story.cluster.client().drain(FAST).await.expect("drained");
    let left = |job: &JobView| job.phase == JobPhase::Queued;
    story
        .cluster
        .until(keen, "that it left the node", left)
        .await;
    story.hurry();
    for job in [steady, keen] {
        let view = story.cluster.succeeded(job).await;
        let step = view.progress.map(|progress| progress.step);
        assert_eq!((view.failures, step), (0, Some(u64::from(LONG))));
    }
    let nodes = story.nodes(keen).await;
    assert_eq!(nodes.last().map(String::as_str), Some(SLOW), "{nodes:?}");
    let resumed = story.cluster.resumed_at(keen).await;
    assert_eq!(resumed.len(), 2, "{resumed:?}");
    assert!(resumed.is_sorted());
    no_gpu_was_held_twice(&story.cluster, &[keen, steady]).await;
    every_round_replays(&story.cluster);
    story.cluster.down();
}

struct Story {
    cluster: TestCluster,
}

impl Story {
    async fn begin() -> Self {
        let options = TestClusterOptions { nodes: 1, slots: 1 };
        let passed = "PATH,HOME,LANG,TZ,NODE_SPEED".to_owned();
        let settings = vec![
            ("MUSTER_EXECUTOR_PASS_ENVIRONMENT", passed),
            ("MUSTER_EXECUTOR_CPU_SLOT_MODEL", "cpu-slow".to_owned()),
            ("NODE_SPEED", "slow".to_owned()),
        ];
        let mut cluster = TestCluster::start_set(options, settings).await;
        let settings = [
            ("MUSTER_EXECUTOR_CPU_SLOT_MODEL", "cpu-fast"),
            ("NODE_SPEED", "fast"),
        ];
        cluster.join(FAST, &settings).await;
        Self { cluster }
    }

    /// Runs a short job of each family on each kind, which its constraint selects.
    async fn measure_both_families_on_both_kinds(&self) {
        let mut jobs = Vec::new();
        for (kind, node) in [("cpu-fast", FAST), ("cpu-slow", SLOW)] {
            for family in ["steady", "keen"] {
                let kinds = format!("resources: {{ worker: {{ gpu_kinds: [{kind}] }} }}\n");
                jobs.push((self.submit(family, SHORT, &kinds).await, node));
            }
        }
        for (job, node) in jobs {
            self.cluster.succeeded(job).await;
            assert_eq!(self.nodes(job).await, [node]);
        }
        let known = self.cluster.client().families().await.expect("families");
        assert_eq!(known.len(), 2, "{known:?}");
    }

    /// Submits a job of a family: equal name and arguments.
    async fn submit(&self, family: &str, steps: u32, more: &str) -> JobId {
        let slow_s = match family {
            "keen" => "0.2",
            _ => "0.06",
        };
        let argv = serde_json::json!(["sh", "-c", PROGRAM]);
        let hurry = self.cluster.data().join("hurry");
        let document = format!(
            "version: muster/v1
name: {family}
command:
  argv: {argv}
  steps: {steps}
  env: {{ STEPS: '{steps}', FAST_S: '0.05', SLOW_S: '{slow_s}', HURRY: {} }}
{more}",
            hurry.display()
        );
        self.cluster.submit(&document).await.id
    }

    fn hurry(&self) {
        std::fs::write(self.cluster.data().join("hurry"), "").expect("written");
    }

    /// Waits until the newest task of the job runs on this node.
    async fn runs_on(&self, job: JobId, node: &str) {
        for _ in 0..1_200 {
            let view = self.cluster.client().job(job).await.expect("there");
            let nodes = self.nodes(job).await;
            if view.phase == JobPhase::Running && nodes.last().is_some_and(|last| last == node) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.cluster.print_history(job).await;
        let explained = self.cluster.run(&["explain", &job.to_string()]);
        panic!("job {job} does not run on {node}: {explained}");
    }

    /// Steps from which the job continued, once it has logged one after its first restart.
    async fn resumed(&self, job: JobId) -> Vec<u64> {
        for _ in 0..400 {
            let resumed = self.cluster.resumed_at(job).await;
            if !resumed.is_empty() {
                return resumed;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("job {job} has not continued");
    }

    /// Nodes of the job's tasks, in the order of its starts.
    async fn nodes(&self, job: JobId) -> Vec<String> {
        let mut tasks = self.cluster.client().tasks(job).await.expect("tasks");
        tasks.sort_by_key(|task| task.revision);
        tasks.into_iter().map(|task| task.node).collect()
    }

    /// Reasons of the job's moves.
    async fn moves(&self, job: JobId) -> Vec<String> {
        let history = self.cluster.history(job).await.into_iter();
        let moves = history.filter_map(|entry| match entry.event {
            Event::JobStopRequested {
                then: AfterStop::Move { .. },
                why,
                ..
            } => Some(why),
            _ => None,
        });
        moves.collect()
    }
}
