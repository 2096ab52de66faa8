//! Idempotency keys: repeated requests receive the first answer.

use crate::world::{World, at};
use muster_store::idempotency::{Claim, claim, store, sweep};
use muster_store::pool;
use std::time::Duration;

#[tokio::test]
async fn repeated_request_gets_the_first_answer_others_are_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(
        claim(&mut tx, world.red, "k", &[1; 32], at(0), at(10)).await?,
        Claim::New
    );
    store(&mut tx, world.red, "k", 201, "made").await?;
    assert_eq!(
        claim(&mut tx, world.red, "k", &[1; 32], at(1), at(10)).await?,
        Claim::Replay {
            status: 201,
            body: "made".to_owned()
        }
    );
    assert_eq!(
        claim(&mut tx, world.red, "k", &[2; 32], at(1), at(10)).await?,
        Claim::Mismatch
    );
    assert_eq!(
        claim(&mut tx, world.red, "k", &[2; 32], at(10), at(20)).await?,
        Claim::New,
        "it has expired"
    );
    assert_eq!(sweep(&mut tx, at(19)).await?, 0);
    assert_eq!(sweep(&mut tx, at(20)).await?, 1);
    Ok(())
}

#[tokio::test]
async fn second_request_waits_and_takes_over_if_the_first_fails() -> anyhow::Result<()> {
    let world = World::new().await?;
    for (first_commits, expected) in [
        (false, Claim::New),
        (
            true,
            Claim::Replay {
                status: 201,
                body: "made".to_owned(),
            },
        ),
    ] {
        let mut first = pool::begin_for(&world.api, world.red).await?;
        assert_eq!(
            claim(&mut first, world.red, "k", &[1; 32], at(0), at(10)).await?,
            Claim::New
        );
        store(&mut first, world.red, "k", 201, "made").await?;
        let second = async {
            let mut tx = pool::begin_for(&world.api, world.red).await?;
            anyhow::Ok(claim(&mut tx, world.red, "k", &[1; 32], at(0), at(10)).await?)
        };
        let finish = async {
            tokio::time::sleep(Duration::from_millis(50)).await;
            if first_commits {
                first.commit().await
            } else {
                first.rollback().await
            }
        };
        let (claimed, finished) = tokio::join!(second, finish);
        finished?;
        assert_eq!(claimed?, expected);
    }
    Ok(())
}
