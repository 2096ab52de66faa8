//! Rounds are stored unchanged, each number once.

use crate::world::{World, at};
use muster_store::round::{RoundRecord, get, insert, list, next_number, prune, said_of};
use muster_store::{pool, tenant_scope};
use serde_json::json;

#[tokio::test]
async fn round_is_stored_unchanged_and_its_number_is_unique() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    for seconds in 1..=3 {
        let number = next_number(&mut tx).await?;
        let plan = format!(
            r#"{{"z": 1,"a":[0.10, {}], "decisions":[1,2], "text":"😀"}}"#,
            u64::MAX
        );
        let round = RoundRecord {
            number,
            snapshot_zstd: vec![0, 1, 255],
            policy: (number > 1).then(|| r#"{"share":"muster", "b":1}"#.to_owned()),
            plan,
            report: r#"{"totals":{"gpus":4}}"#.to_owned(),
        };
        insert(&mut tx, &round, at(seconds)).await?;
        assert_eq!(get(&mut tx, number).await?, Some((at(seconds), round)));
    }
    let shown: Vec<_> = list(&mut tx, Some(3), None, 10)
        .await?
        .into_iter()
        .map(|round| (round.number, round.policy, round.decisions, round.totals))
        .collect();
    let totals = Some(json!({"gpus": 4}));
    assert_eq!(
        shown,
        [
            (2, Some("muster".to_owned()), 2, totals.clone()),
            (1, None, 2, totals)
        ]
    );
    assert_eq!(list(&mut tx, None, Some(at(3)), 10).await?.len(), 1);
    assert_eq!(prune(&mut tx, at(100)).await?, 2);
    assert_eq!(next_number(&mut tx).await?, 4);
    tx.commit().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let again = RoundRecord {
        number: 3,
        snapshot_zstd: Vec::new(),
        policy: None,
        plan: "{}".to_owned(),
        report: "{}".to_owned(),
    };
    assert!(
        insert(&mut tx, &again, at(4))
            .await
            .expect_err("another leader was first")
            .is_taken()
    );
    Ok(())
}

#[tokio::test]
async fn rounds_are_visible_only_to_administrators() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let round = RoundRecord {
        number: 1,
        snapshot_zstd: vec![1],
        policy: None,
        plan: r#"{"decisions":[]}"#.to_owned(),
        report: "{}".to_owned(),
    };
    insert(&mut tx, &round, at(1)).await?;
    tx.commit().await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(get(&mut tx, 1).await?, None);
    assert_eq!(list(&mut tx, None, None, 10).await?, []);
    tenant_scope::admin(&mut tx).await?;
    assert_eq!(get(&mut tx, 1).await?, Some((at(1), round)));
    assert_eq!(list(&mut tx, None, None, 10).await?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn newest_round_of_a_job_is_visible_only_to_its_tenant() -> anyhow::Result<()> {
    let world = World::new().await?;
    let job = world.submit("mine").await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    for (number, why) in [(1, "old"), (2, "new")] {
        let round = RoundRecord {
            number,
            snapshot_zstd: vec![1],
            policy: None,
            plan: r#"{"decisions":[]}"#.to_owned(),
            report: json!({"runner_up": null, "jobs": [{"job": job, "why": why}]}).to_string(),
        };
        insert(&mut tx, &round, at(number)).await?;
    }
    tx.commit().await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    let said = said_of(&mut tx, job)
        .await?
        .expect("the round said something");
    assert_eq!((said.round, said.job["why"].as_str()), (2, Some("new")));
    assert_eq!(said.runner_up, None);
    let mut tx = pool::begin_for(&world.api, world.blue).await?;
    tenant_scope::admin(&mut tx).await?;
    assert_eq!(said_of(&mut tx, job).await?, None);
    Ok(())
}
