//! Rounds are kept as they were, each number once.

use crate::world::{World, at};
use muster_store::pool;
use muster_store::round::{RoundRecord, get, insert, list, next_number, prune};
use serde_json::json;

#[tokio::test]
async fn a_round_is_kept_whole_and_its_number_is_taken_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    for seconds in 1..=3 {
        let number = next_number(&mut tx).await?;
        let plan = json!({"z": 1, "a": [0.1, u64::MAX], "text": "\u{1F600}"});
        let round = RoundRecord {
            number,
            snapshot_zstd: vec![0, 1, 255],
            plan,
            report: json!({"number": number}),
        };
        insert(&mut tx, &round, at(seconds)).await?;
        assert_eq!(get(&mut tx, number).await?, Some((at(seconds), round)));
    }
    let numbers: Vec<u64> = list(&mut tx, Some(3), 10)
        .await?
        .iter()
        .map(|round| round.number)
        .collect();
    assert_eq!(numbers, [2, 1]);
    assert_eq!(prune(&mut tx, at(100)).await?, 2);
    assert_eq!(next_number(&mut tx).await?, 4);
    tx.commit().await?;
    let mut tx = pool::begin(&world.scheduler).await?;
    let again = RoundRecord {
        number: 3,
        snapshot_zstd: Vec::new(),
        plan: json!({}),
        report: json!({}),
    };
    assert!(
        insert(&mut tx, &again, at(4))
            .await
            .expect_err("another leader was first")
            .is_taken()
    );
    Ok(())
}
