//! Values of secrets reach only the node that runs the task.

use crate::support::{Greeting, Node, OWN, Shell, Store, TOKEN};
use muster_model::actor::Actor;
use muster_model::id::JobId;
use muster_proto::session as proto;
use muster_proto::session::node_sessions_client::NodeSessionsClient;
use muster_proto::session::task_secret::Result as Found;
use muster_scheduler::clock;
use muster_secret::{KeySource, Keyring, Owner, Sealed, SecretValue, new_key};
use muster_store::secret::{self, SecretRow};
use tonic::{Code, Status};

struct Cluster {
    store: Store,
    shell: Shell,
    keys: Keyring,
    _place: tempfile::TempDir,
}

impl Cluster {
    async fn new() -> Self {
        let store = Store::new().await;
        let place = tempfile::tempdir().expect("a folder");
        let path = place.path().join("keys");
        let key = new_key("a").expect("made");
        std::fs::write(&path, key.as_bytes()).expect("written");
        let mut shell = Shell::start_with(&store, 30_000, |config| {
            config.secret_keys = KeySource::File(path);
        })
        .await;
        shell.until_it_leads().await;
        Self {
            store,
            shell,
            keys: Keyring::parse(&key).expect("a key"),
            _place: place,
        }
    }

    async fn set(&self, name: &str, value: &str) {
        let tenant = self.store.tenant();
        let mut tx = self.store.as_member().await;
        let version = secret::next_version(&mut tx, tenant, name).await;
        let version = version.expect("within the limit");
        let owner = Owner {
            tenant,
            name,
            version,
        };
        let sealed = Sealed::seal(&self.keys, owner, &SecretValue::from(value.to_owned()));
        let sealed = sealed.expect("sealed");
        let row = SecretRow {
            name: name.to_owned(),
            version,
            key_id: sealed.key_id,
            nonce: sealed.nonce,
            ciphertext: sealed.ciphertext,
        };
        let by = Actor {
            user: "ada".to_owned(),
            as_administrator: false,
        };
        let put = secret::put(&mut tx, tenant, &row, &by, clock::now()).await;
        put.expect("stored");
        tx.commit().await.expect("committed");
    }

    async fn submit(&self) -> JobId {
        let document = serde_json::json!({
            "version": "muster/v1", "name": "job",
            "command": { "argv": ["true"], "secrets": [{ "name": "A" }, { "name": "B", "file": "b" }] },
        });
        self.store.submit_document(document).await
    }

    async fn ask(
        &self,
        name: &str,
        credential: &str,
        task: &str,
    ) -> Result<Vec<(String, Found)>, Status> {
        let url = format!("http://{}", self.shell.address);
        let mut client = NodeSessionsClient::connect(url).await.expect("it listens");
        let request = proto::TaskSecretsRequest {
            node_name: name.to_owned(),
            credential: credential.to_owned(),
            task_id: task.to_owned(),
            revision: 1,
        };
        let answer = client.task_secrets(request).await?.into_inner();
        let secrets = answer.secrets.into_iter();
        Ok(secrets
            .map(|secret| (secret.name, secret.result.expect("a result")))
            .collect())
    }
}

fn value(name: &str, value: &str) -> (String, Found) {
    (name.to_owned(), Found::Value(value.to_owned()))
}

#[tokio::test]
async fn only_the_node_of_the_task_gets_the_values() {
    let cluster = Cluster::new().await;
    cluster.set("A", "value-one").await;
    cluster.set("B", "value-two").await;
    let mut node = Node::greet(cluster.shell.address, &OWN)
        .await
        .expect("welcome");
    let job = cluster.submit().await;
    let tasks = node.assignment(|tasks| tasks.len() == 1).await;
    let task = tasks[0].launch.task_id.to_string();
    let sent = cluster
        .ask("node-1", "own secret", &task)
        .await
        .expect("ours");
    assert_eq!(sent, [value("A", "value-one"), value("B", "value-two")]);
    let launch = serde_json::to_string(&tasks[0].launch).expect("JSON");
    assert!(!launch.contains("value-"), "{launch}");
    // A rotated value reaches the next start.
    cluster.set("A", "value-three").await;
    let sent = cluster
        .ask("node-1", "own secret", &task)
        .await
        .expect("ours");
    assert_eq!(sent[0], value("A", "value-three"));
    let other = Greeting {
        name: "node-2",
        identity: "folder-2",
        credential: "other secret",
        ..OWN
    };
    Node::greet(cluster.shell.address, &other)
        .await
        .expect("welcome");
    let unknown = clock::id().to_string();
    for (name, credential, asked) in [
        ("node-2", "other secret", &task),
        ("node-1", "other secret", &task),
        ("node-1", "", &task),
        ("node-1", TOKEN, &task),
        ("node-1", "own secret", &unknown),
    ] {
        let refused = cluster
            .ask(name, credential, asked)
            .await
            .expect_err("refused");
        assert_eq!(
            refused.code(),
            Code::PermissionDenied,
            "{name} {credential}"
        );
    }
    let cancel = format!("update job set intent = 'cancel' where id = '{job}'");
    cluster.store.database.execute(&cancel).await;
    node.assignment(|tasks| tasks.iter().all(|task| task.stop))
        .await;
    let ended = cluster
        .ask("node-1", "own secret", &task)
        .await
        .expect_err("ended");
    assert_eq!(ended.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn missing_and_tampered_secrets_are_problems_by_name() {
    let cluster = Cluster::new().await;
    cluster.set("A", "value-one").await;
    let mut node = Node::greet(cluster.shell.address, &OWN)
        .await
        .expect("welcome");
    cluster.submit().await;
    let tasks = node.assignment(|tasks| tasks.len() == 1).await;
    let task = tasks[0].launch.task_id.to_string();
    let problem = |found: &(String, Found)| match found {
        (name, Found::Problem(text)) => format!("{name}: {text}"),
        other => panic!("no problem: {other:?}"),
    };
    let sent = cluster
        .ask("node-1", "own secret", &task)
        .await
        .expect("ours");
    assert_eq!(sent[0], value("A", "value-one"));
    assert!(problem(&sent[1]).starts_with("B: it does not exist any more"));
    for (change, word) in [
        (
            "set ciphertext = set_byte(ciphertext, 0, 255 - get_byte(ciphertext, 0))",
            "was changed",
        ),
        ("set key_id = 'removed'", "\"removed\""),
    ] {
        let change = format!("update secret {change} where name = 'A'");
        cluster.store.database.execute(&change).await;
        let sent = cluster
            .ask("node-1", "own secret", &task)
            .await
            .expect("ours");
        assert!(problem(&sent[0]).contains(word), "{sent:?}");
    }
}
