//! Admission of executors: a client with only the join token cannot read the tasks of a node.

use crate::support::{Greeting, Node, OWN, Shell, Store};
use muster_model::actor::Actor;
use muster_scheduler::clock;
use muster_scheduler::config::Rejoin;
use muster_store::membership::{self, NodeRemovalOutcome};
use muster_store::pool;
use tonic::Code;

const LEASE_MS: u64 = 30_000;

async fn refused(shell: &Shell, greeting: &Greeting<'_>) -> tonic::Status {
    let greeted = Node::greet(shell.address, greeting).await;
    greeted.err().expect("refused")
}

async fn shell(store: &Store, rejoin: Rejoin) -> Shell {
    let mut shell = Shell::start_with(store, LEASE_MS, |config| config.rejoin = rejoin).await;
    shell.until_it_leads().await;
    shell
}

async fn lose_all(store: &Store) {
    let mut tx = pool::begin(&store.pool).await.expect("begun");
    let heard = muster_store::node::heard(&mut tx).await.expect("read");
    let lost = muster_store::node::lost(&mut tx, &heard, clock::now()).await;
    lost.expect("marked");
    tx.commit().await.expect("committed");
}

/// Hellos of a client with the join token and without the credential.
fn impostors() -> Vec<Greeting<'static>> {
    let mut all = Vec::new();
    for identity in ["", "folder", "another"] {
        for credential in ["", "another secret"] {
            all.push(Greeting {
                identity,
                credential,
                ..OWN
            });
        }
    }
    all
}

#[tokio::test]
async fn impostors_are_refused_while_the_node_lives() {
    for rejoin in [Rejoin::Lost, Rejoin::Reset] {
        let store = Store::new().await;
        let shell = shell(&store, rejoin).await;
        let mut node = Node::greet(shell.address, &OWN).await.expect("welcome");
        store.submit((1, 1)).await;
        node.assignment(|tasks| tasks.len() == 2).await;
        for impostor in impostors() {
            let refused = refused(&shell, &impostor).await;
            assert_eq!(refused.code(), Code::PermissionDenied, "{impostor:?}");
            assert!(refused.message().contains("node-1 has a credential"));
        }
        node.heartbeat().await;
        node.until_acknowledged()
            .await
            .expect("it was not replaced");
        // The credential alone suffices, for example after a change of the join token.
        let known = Greeting { token: "", ..OWN };
        Node::greet(shell.address, &known).await.expect("welcome");
    }
}

#[tokio::test]
async fn impostors_get_no_launch_of_a_lost_node() {
    let store = Store::new().await;
    let strict = shell(&store, Rejoin::Reset).await;
    let mut node = Node::greet(strict.address, &OWN).await.expect("welcome");
    let job = store.submit((1, 1)).await;
    node.assignment(|tasks| tasks.len() == 2).await;
    drop(node);
    lose_all(&store).await;
    for impostor in impostors() {
        let refused = refused(&strict, &impostor).await;
        assert_eq!(refused.code(), Code::PermissionDenied, "{impostor:?}");
    }
    drop(strict);
    // Paused, so that it is not placed again.
    let pause = format!("update job set intent = 'pause' where id = '{job}'");
    store.database.execute(&pause).await;

    let shell = shell(&store, Rejoin::Lost).await;
    for impostor in impostors() {
        if impostor.credential.is_empty() {
            let refused = refused(&shell, &impostor).await;
            assert_eq!(refused.code(), Code::PermissionDenied, "{impostor:?}");
        }
    }
    let replaced = Greeting {
        credential: "another secret",
        identity: "another",
        ..OWN
    };
    let mut replaced = Node::greet(shell.address, &replaced)
        .await
        .expect("a replaced machine joins again");
    let told = replaced.assignment(|_| true).await;
    assert!(told.is_empty(), "nothing of what the node ran before");
    let code = refused_code(&shell, &OWN).await;
    assert_eq!(code, Code::PermissionDenied, "the place is taken");
}

#[tokio::test]
async fn executor_without_credential_joins_until_another_has_one() {
    let store = Store::new().await;
    let shell = shell(&store, Rejoin::Reset).await;
    let old = Greeting {
        credential: "",
        ..OWN
    };
    Node::greet(shell.address, &old).await.expect("welcome");
    for identity in ["", "another"] {
        let refused = refused(&shell, &Greeting { identity, ..old }).await;
        assert_eq!(refused.code(), Code::Unavailable, "{identity:?}");
        assert!(refused.message().contains("node-1 has an identity"));
    }
    Node::greet(shell.address, &old).await.expect("again");
    Node::greet(shell.address, &OWN).await.expect("upgraded");
    assert_eq!(refused_code(&shell, &old).await, Code::PermissionDenied);
}

fn with(token: &str) -> Greeting<'_> {
    Greeting { token, ..OWN }
}

async fn remove(store: &Store, by: &Actor) -> NodeRemovalOutcome {
    let mut tx = store.as_administrator().await;
    let removed = membership::remove(&mut tx, "node-1", by, clock::now()).await;
    tx.commit().await.expect("committed");
    removed.expect("asked")
}

#[tokio::test]
async fn one_time_token_is_valid_once_and_for_its_node() {
    let store = Store::new().await;
    let shell = shell(&store, Rejoin::Reset).await;
    let by = Actor {
        user: "ada".into(),
        as_administrator: false,
    };
    let now = clock::now();
    let mut tx = store.as_administrator().await;
    for (token, minutes) in [("muster_join_a", 60), ("muster_join_old", -1)] {
        let hash = muster_scheduler::session::hash(token);
        let ends = now + time::Duration::minutes(minutes);
        membership::create_join_token(&mut tx, "node-1", &hash, (now, ends), &by)
            .await
            .expect("made");
    }
    tx.commit().await.expect("committed");
    for (greeting, why) in [
        (with("muster_join_b"), "it was never made"),
        (with("muster_join_old"), "it has expired"),
        (
            Greeting {
                name: "node-2",
                ..with("muster_join_a")
            },
            "it is for another node",
        ),
    ] {
        let refused = refused(&shell, &greeting).await;
        assert_eq!(refused.code(), Code::Unauthenticated, "{why}");
    }
    let node = Node::greet(shell.address, &with("muster_join_a")).await;
    drop(node.expect("welcome"));
    let other = Greeting {
        credential: "another secret",
        ..with("muster_join_a")
    };
    let used = refused(&shell, &other).await;
    assert_eq!(used.code(), Code::Unauthenticated, "it was used");
    // The executor still has the used token in its settings, and its credential is accepted.
    let again = Node::greet(shell.address, &with("muster_join_a")).await;
    again.expect("welcome");

    // After a reset or a removal the next executor binds its own credential.
    let replaced = Greeting {
        credential: "another secret",
        ..OWN
    };
    assert_eq!(
        refused_code(&shell, &replaced).await,
        Code::PermissionDenied
    );
    let mut tx = store.as_administrator().await;
    let reset = membership::reset(&mut tx, "node-1", &by, clock::now()).await;
    assert!(reset.expect("reset").is_some());
    tx.commit().await.expect("committed");
    let node = Node::greet(shell.address, &replaced)
        .await
        .expect("welcome");
    assert_eq!(remove(&store, &by).await, NodeRemovalOutcome::Up);
    drop(node);
    lose_all(&store).await;
    assert_eq!(remove(&store, &by).await, NodeRemovalOutcome::Done);
    assert_eq!(remove(&store, &by).await, NodeRemovalOutcome::NoSuchNode);
    let mut tx = store.as_administrator().await;
    let listed = muster_store::node::list(&mut tx).await.expect("listed");
    assert!(listed.is_empty());
    drop(tx);
    Node::greet(shell.address, &OWN).await.expect("as new");
}

async fn refused_code(shell: &Shell, greeting: &Greeting<'_>) -> Code {
    refused(shell, greeting).await.code()
}
