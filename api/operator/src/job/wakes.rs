//! Who is woken when a job has changed: the controller of its object's namespace looks at the object.

use super::document::label;
use crate::resource::TrainingJob;
use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use muster_model::view::JobView;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Debug, Default)]
pub struct Wakes {
    sleepers: Mutex<Vec<Sleeper>>,
}

#[derive(Debug)]
struct Sleeper {
    /// Whose objects; of all where this is `None`.
    namespace: Option<String>,
    /// It is read as fast as it is written: what is to be looked at more than once stands in the controller's queue once.
    sender: UnboundedSender<ObjectRef<TrainingJob>>,
}

impl Wakes {
    /// The objects of a namespace whose jobs change from now on, or those of all namespaces.
    pub fn of(
        &self,
        namespace: Option<String>,
    ) -> impl Stream<Item = ObjectRef<TrainingJob>> + Send + 'static {
        let (sender, receiver) = unbounded_channel();
        self.sleepers().push(Sleeper { namespace, sender });
        futures::stream::unfold(receiver, |mut receiver: UnboundedReceiver<_>| async {
            Some((receiver.recv().await?, receiver))
        })
    }

    pub(super) fn wake(&self, job: &JobView) {
        let Some(namespace) = job.labels.get(label::NAMESPACE) else {
            return;
        };
        let object = ObjectRef::new(&job.name).within(namespace);
        self.sleepers().retain(|sleeper| {
            let is_its = sleeper
                .namespace
                .as_ref()
                .is_none_or(|own| own == namespace);
            !is_its || sleeper.sender.send(object.clone()).is_ok()
        });
    }

    fn sleepers(&self) -> std::sync::MutexGuard<'_, Vec<Sleeper>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
