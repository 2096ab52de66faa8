//! Fair work queue for reconciliations. kube's controller takes waiting objects in the order of a
//! hash set and can starve some of them while others keep arriving. The controller may therefore
//! start any number of reconciliations, which wait here in FIFO order. Objects without a submission
//! have a separate, lower concurrency limit, so that many new objects do not delay the existing
//! ones.

use crate::error::Error;
use kube::Resource;
use kube::runtime::controller::{Action, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of concurrent reconciliations; each mostly waits for answers.
const AT_ONCE: usize = 32;
/// Maximum number of concurrent reconciliations of objects without a submission.
const NEW: usize = 8;

/// Work queue of one controller, and the objects of the controller.
#[derive(Clone)]
pub struct WorkQueue<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    objects: Store<K>,
    all: Arc<Semaphore>,
    new: Arc<Semaphore>,
}

/// Place in the running set, held until it is dropped.
struct ReconcilePermit {
    _all: OwnedSemaphorePermit,
    _new: Option<OwnedSemaphorePermit>,
}

/// Settings of a controller whose concurrency this queue limits.
#[must_use]
pub fn settings() -> Config {
    Config::default().concurrency(0)
}

impl<K> WorkQueue<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    #[must_use]
    pub fn of(objects: Store<K>) -> Self {
        Self {
            objects,
            all: Arc::new(Semaphore::new(AT_ONCE)),
            new: Arc::new(Semaphore::new(NEW)),
        }
    }

    /// Reconciles the object when its place is free, in the version that the watch then has. The
    /// reconciliation runs as a separate task, because waiting futures are polled whenever one of
    /// them may continue, and polling must be cheap.
    ///
    /// # Errors
    /// Those of the reconciliation.
    ///
    /// # Panics
    /// If the reconciliation panics.
    pub async fn run<F>(
        self,
        object: Arc<K>,
        is_new: bool,
        reconcile: impl FnOnce(Arc<K>) -> F,
    ) -> Result<Action, Error>
    where
        F: Future<Output = Result<Action, Error>> + Send + 'static,
    {
        let permit = self.permit(is_new).await;
        let Some(object) = self.objects.get(&ObjectRef::from_obj(&*object)) else {
            return Ok(Action::await_change());
        };
        let reconciled = tokio::spawn(reconcile(object)).await;
        drop(permit);
        reconciled.unwrap_or_else(|ended| std::panic::resume_unwind(ended.into_panic()))
    }

    async fn permit(&self, is_new: bool) -> ReconcilePermit {
        // In this order a new object competes with the others only once it is first among the new
        // ones.
        let new = if is_new {
            Some(permit_of(&self.new).await)
        } else {
            None
        };
        ReconcilePermit {
            _all: permit_of(&self.all).await,
            _new: new,
        }
    }
}

async fn permit_of(queue: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(queue).acquire_owned().await;
    permit.expect("nobody closes it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::{StreamExt as _, stream};
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::ResourceExt as _;
    use kube::runtime::controller::applier;
    use kube::runtime::reflector;
    use kube::runtime::watcher::Event;
    use std::collections::BTreeMap;
    use std::convert::Infallible;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    const OBJECTS: usize = 300;
    const LOOK: Duration = Duration::from_millis(1);

    /// Names of the reconciled objects, in order.
    type ReconciledNames = Arc<Mutex<Vec<String>>>;

    /// Objects called `0`, `1` and so on, as in a watch.
    fn objects() -> Store<ConfigMap> {
        let (store, mut writer) = reflector::store();
        writer.apply_watcher_event(&Event::Init);
        for number in 0..OBJECTS {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(number.to_string());
            writer.apply_watcher_event(&Event::InitApply(object));
        }
        writer.apply_watcher_event(&Event::InitDone);
        store
    }

    /// Reconciles all objects, each again as soon as it is done, until the number of
    /// `reconciliations` is reached.
    async fn reconciled(is_new: fn(&str) -> bool, reconciliations: usize) -> Vec<String> {
        let objects = objects();
        let queue = WorkQueue::of(objects.clone());
        let reconciled = ReconciledNames::default();
        let seen = Arc::clone(&reconciled);
        let reconcile = move |object: Arc<ConfigMap>, _: Arc<()>| {
            let seen = Arc::clone(&seen);
            let is_new = is_new(&object.name_any());
            Box::pin(queue.clone().run(object, is_new, |object| async move {
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(object.name_any());
                tokio::time::sleep(LOOK).await;
                Ok(Action::requeue(Duration::ZERO))
            }))
        };
        let all = objects.state();
        let all: Vec<_> = all
            .iter()
            .map(|object| ObjectRef::from_obj(&**object))
            .collect();
        let queue = stream::iter(all.into_iter().map(Ok::<_, Infallible>));
        let queue = queue.chain(stream::pending());
        let done = applier(
            reconcile,
            |_, _: &Error, _| Action::await_change(),
            Arc::new(()),
            objects,
            queue,
            settings(),
        );
        done.take(reconciliations).for_each(|_| async {}).await;
        let reconciled = reconciled.lock().unwrap_or_else(PoisonError::into_inner);
        reconciled.clone()
    }

    /// In kube's own order many objects starve while others keep arriving.
    #[tokio::test]
    async fn objects_are_reconciled_equally_often() {
        let reconciled = reconciled(|_| false, 10 * OBJECTS).await;
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for name in &reconciled {
            *times.entry(name).or_default() += 1;
        }
        assert!(
            times.len() == OBJECTS && times.values().all(|times| (8..=12).contains(times)),
            "{times:?}"
        );
    }

    fn is_new(name: &str) -> bool {
        !name.ends_with(['0', '5'])
    }

    #[tokio::test]
    async fn new_objects_wait_and_do_not_delay_existing_ones() {
        // Four of five objects are new: eight of them queue together with the sixty others.
        let reconciled = reconciled(is_new, 10 * OBJECTS).await;
        let new = reconciled.iter().filter(|name| is_new(name)).count();
        let all = reconciled.len();
        assert!(
            new * AT_ONCE <= all * NEW,
            "{new} of {all} at most a quarter"
        );
        assert!(new * 2 * (OBJECTS / 5 + NEW) >= all * NEW, "{new} of {all}");
    }
}
