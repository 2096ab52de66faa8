//! Notifies the controller of an object's namespace when the job of the object has changed.

use super::document::label;
use crate::job::status::TrainingJob;
use futures::Stream;
use kube::runtime::reflector::ObjectRef;
use muster_model::view::JobView;
use std::sync::{Mutex, PoisonError};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

#[derive(Debug, Default)]
pub struct JobChangeNotifier {
    subscribers: Mutex<Vec<JobChangeSubscriber>>,
}

#[derive(Debug)]
struct JobChangeSubscriber {
    /// Namespace of the objects; `None` for all.
    namespace: Option<String>,
    /// The channel is read as fast as it is written, because the controller's queue holds each
    /// object once.
    sender: UnboundedSender<ObjectRef<TrainingJob>>,
}

impl JobChangeNotifier {
    /// Returns the objects of a namespace, or of all namespaces, whose jobs change from now on.
    pub fn subscribe(
        &self,
        namespace: Option<String>,
    ) -> impl Stream<Item = ObjectRef<TrainingJob>> + Send + 'static {
        let (sender, receiver) = unbounded_channel();
        self.subscribers()
            .push(JobChangeSubscriber { namespace, sender });
        futures::stream::unfold(receiver, |mut receiver: UnboundedReceiver<_>| async {
            Some((receiver.recv().await?, receiver))
        })
    }

    pub(super) fn notify(&self, job: &JobView) {
        let Some(namespace) = job.labels.get(label::NAMESPACE) else {
            return;
        };
        let object = ObjectRef::new(&job.name).within(namespace);
        self.subscribers().retain(|subscriber| {
            let is_its = subscriber
                .namespace
                .as_ref()
                .is_none_or(|own| own == namespace);
            !is_its || subscriber.sender.send(object.clone()).is_ok()
        });
    }

    fn subscribers(&self) -> std::sync::MutexGuard<'_, Vec<JobChangeSubscriber>> {
        self.subscribers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
