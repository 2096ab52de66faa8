//! The typed client against a real server, over a real socket.

use crate::world::{RED, World, document, progress};
use futures::StreamExt as _;
use muster_client::{Client, ClientError, EventQuery, JobQuery, Messages, StreamItem};
use muster_model::job::{Intent, JobPhase};
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

async fn serve(world: &World, at: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind(at).await.expect("an address");
    let address = listener.local_addr().expect("an address");
    let router = world.router.clone();
    let server =
        tokio::spawn(async move { axum::serve(listener, router).await.expect("it serves") });
    (address, server)
}

#[tokio::test(flavor = "multi_thread")]
async fn client_calls_are_understood_by_the_server() {
    let world = World::new().await;
    let (address, _server) = serve(&world, ([127, 0, 0, 1], 0).into()).await;
    let client = Client::new(&format!("http://{address}"), RED).expect("an address");
    assert_eq!(client.me().await.expect("me").user, "rob");
    assert_eq!(
        client.dry_run(&document("dry")).await.expect("right").name,
        "dry"
    );
    let job = client
        .submit(&document("by-client"), Some("key"))
        .await
        .expect("a job");
    assert_eq!(
        client
            .submit(&document("by-client"), Some("key"))
            .await
            .expect("the same")
            .id,
        job.id
    );
    let query = JobQuery {
        phases: vec![JobPhase::Queued],
        labels: vec!["team=by-client".to_owned()],
        ..JobQuery::default()
    };
    assert_eq!(client.jobs(&query).await.expect("jobs").items.len(), 1);
    assert_eq!(
        client
            .find_job(job.id)
            .await
            .expect("an answer")
            .expect("the job"),
        job
    );
    let events = client
        .events(job.id, &EventQuery::default())
        .await
        .expect("events");
    assert_eq!(events.items.len(), 1);
    assert_eq!(client.secrets().await.expect("secrets"), []);
    let (worker, _) = world.run(job.id, 0, 0).await;
    world.write_log(worker, 0, b"hello\n").await;
    world.tell(worker, 1, 0, vec![progress(5)]).await;
    assert_eq!(client.tasks(job.id).await.expect("tasks").len(), 2);
    let log = client
        .logs(job.id, worker, muster_client::LogPart::From(0), false)
        .await
        .expect("a log");
    assert_eq!(
        (log.text.as_str(), log.next_offset, log.at_end),
        ("hello\n", 6, true)
    );
    assert_eq!(
        client
            .progress(job.id, None, None)
            .await
            .expect("a series")
            .samples
            .len(),
        1
    );
    assert_eq!(client.nodes().await.expect("nodes")[0].name, "node-a");
    assert_eq!(
        client.pause(job.id).await.expect("paused").intent,
        Intent::Pause
    );
    match client.drain("node-a").await {
        Err(ClientError::Problem(problem)) => assert_eq!(problem.status, 403),
        other => panic!("a member drained: {other:?}"),
    }
    let nowhere = Client::new("http://127.0.0.1:1", RED).expect("an address");
    assert!(matches!(
        nowhere.me().await,
        Err(ClientError::Unreachable { .. })
    ));
}

/// Reads the steps of samples until the step `until`.
async fn collect(stream: &mut Messages, steps: &mut Vec<u64>, until: u64) {
    while steps.last() != Some(&until) {
        match stream.next().await.expect("it goes on").expect("no error") {
            StreamItem::Progress(new) => {
                steps.extend(new.samples.iter().map(|sample| sample.sample.step))
            }
            other => drop(other),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn watched_job_is_followed_over_a_server_restart() {
    let world = World::new().await;
    let job = world.submit("watched").await;
    let (worker, _) = world.run(job, 0, 0).await;
    let (address, server) = serve(&world, ([127, 0, 0, 1], 0).into()).await;
    let client = Client::new(&format!("http://{address}"), RED).expect("an address");
    // The tenant's stream, for lists, reports the job too.
    let mut all = client.watch(None);
    let mut stream = client.watch_job(job, None);
    assert!(matches!(
        stream.next().await,
        Some(Ok(StreamItem::Opened(_)))
    ));
    world.tell(worker, 1, 0, vec![progress(10)]).await;
    let mut steps = Vec::new();
    collect(&mut stream, &mut steps, 10).await;
    let newest = loop {
        if let StreamItem::Progress(newest) =
            all.next().await.expect("it goes on").expect("no error")
        {
            break newest;
        }
    };
    assert_eq!((newest.job_id, newest.samples[0].sample.step), (job, 10));
    server.abort();
    let _ = server.await;
    // Connections of an aborted server continue in their own tasks; the router's streams end with
    // the daemon.
    world.tell(worker, 1, 1, vec![progress(20)]).await;
    let (_, _again) = serve(&world, address).await;
    world.tell(worker, 1, 2, vec![progress(30)]).await;
    collect(&mut stream, &mut steps, 30).await;
    assert_eq!(steps, [10, 20, 30]);
}
