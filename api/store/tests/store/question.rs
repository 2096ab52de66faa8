//! Questions: bounded per tenant, answered in rotation, visible to their tenant, and deleted after
//! their expiry.

use crate::world::{World, at, id, spec};
use muster_model::id::TenantId;
use muster_model::question::{Answer, Question};
use muster_model::spec::FieldError;
use muster_store::pool;
use muster_store::question::{
    OpenQuestion, QuestionStatus, answer, answer_of, ask, forget, next, prune, standing,
};

fn open(tenant: TenantId) -> OpenQuestion {
    let job = Box::new(spec("imagined"));
    OpenQuestion {
        id: id(),
        tenant,
        question: Question::Plan { job, begins: 0 },
    }
}

async fn put(world: &World, open: &OpenQuestion, at_s: u64) -> anyhow::Result<bool> {
    let mut tx = pool::begin_for(&world.api, open.tenant).await?;
    let asked = ask(&mut tx, open, 2, at(at_s), at(at_s + 60)).await?;
    tx.commit().await?;
    Ok(asked)
}

#[tokio::test]
async fn questions_are_bounded_and_tenants_served_in_rotation() -> anyhow::Result<()> {
    let world = World::new().await?;
    let [first, second, third] = [0; 3].map(|_| open(world.red));
    let other = open(world.blue);
    assert!(put(&world, &first, 1).await? && put(&world, &second, 2).await?);
    assert!(!put(&world, &third, 3).await?, "two are open");
    assert!(put(&world, &other, 4).await?);

    let refused = Answer::Refused {
        error: FieldError {
            field: "add_nodes".to_owned(),
            value: "x".to_owned(),
            expected: "y".to_owned(),
        },
    };
    let mut tx = pool::begin(&world.scheduler).await?;
    let mut served = Vec::new();
    for expected in [&first, &other, &second] {
        let found = next(&mut tx, &served, at(5)).await?.expect("one is open");
        served.push(found.tenant);
        assert_eq!(found, *expected);
        answer(&mut tx, found.id, &refused).await?;
    }
    assert_eq!(next(&mut tx, &served, at(5)).await?, None);
    tx.commit().await?;

    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert_eq!(answer_of(&mut tx, first.id).await?, Some(refused));
    assert_eq!(answer_of(&mut tx, other.id).await?, None, "it is blue's");
    forget(&mut tx, other.id).await?;
    forget(&mut tx, first.id).await?;
    assert_eq!(answer_of(&mut tx, first.id).await?, None);
    tx.commit().await?;
    assert!(put(&world, &third, 6).await?, "the others are answered");
    Ok(())
}

#[tokio::test]
async fn question_for_another_tenant_is_refused_and_questions_expire() -> anyhow::Result<()> {
    let world = World::new().await?;
    let foreign = open(world.blue);
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    assert!(ask(&mut tx, &foreign, 2, at(1), at(2)).await.is_err());
    drop(tx);
    let own = open(world.red);
    assert!(put(&world, &own, 1).await?);
    let mut tx = pool::begin(&world.scheduler).await?;
    assert_eq!(
        next(&mut tx, &[], at(61)).await?,
        None,
        "nobody waits any more"
    );
    assert_eq!(prune(&mut tx, at(60)).await?, 0);
    assert_eq!(prune(&mut tx, at(61)).await?, 1);
    Ok(())
}

#[tokio::test]
async fn tenant_answered_longest_ago_is_next() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (red, blue) = (open(world.red), open(world.blue));
    assert!(put(&world, &red, 1).await? && put(&world, &blue, 2).await?);
    let mut tx = pool::begin(&world.scheduler).await?;
    let elsewhere = TenantId(id());
    for (served, expected) in [
        (vec![], &red),
        (vec![world.red], &blue),
        (vec![world.red, world.blue], &red),
        // Three tenants that ask continuously are answered in rotation.
        (vec![world.blue, elsewhere, world.red], &blue),
    ] {
        let found = next(&mut tx, &served, at(3)).await?;
        assert_eq!(found.as_ref(), Some(expected), "after {served:?}");
    }
    Ok(())
}

fn status(is_open: bool, others_wait: bool) -> QuestionStatus {
    QuestionStatus {
        is_open,
        others_wait,
    }
}

#[tokio::test]
async fn question_is_open_until_its_client_withdraws_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (red, blue) = (open(world.red), open(world.blue));
    assert!(put(&world, &red, 1).await?);
    let standing = async |at_s| -> anyhow::Result<QuestionStatus> {
        let mut tx = pool::begin(&world.scheduler).await?;
        Ok(standing(&mut tx, &red, at(at_s)).await?)
    };
    assert_eq!(standing(2).await?, status(true, false));
    assert!(put(&world, &blue, 2).await?);
    assert_eq!(standing(3).await?, status(true, true));
    assert_eq!(standing(61).await?, status(false, true), "it has expired");
    let mut tx = pool::begin_for(&world.api, world.red).await?;
    forget(&mut tx, red.id).await?;
    tx.commit().await?;
    assert_eq!(standing(3).await?, status(false, true));
    Ok(())
}
