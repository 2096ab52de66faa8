//! Wakes the node loop when files in the folders of its tasks change (inotify), so that the loop
//! need not poll while tasks run.
//!
//! Correctness does not depend on notifications. If the kernel cannot watch a folder,
//! [`TaskFolderWatcher::is_watching`] returns false for its task and the loop polls more often.

use crate::clock;
use crate::folder::NodeTaskFolder;
use crate::ledger::Ledger;
use crate::loop_event::NodeLoopEvent;
use muster_model::assignment::STANDING;
use muster_model::id::TaskId;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread;
use std::time::Duration;

/// Pause after each read of notifications. It bounds the cost of a log that is written
/// continuously.
const GATHER: Duration = Duration::from_millis(3);
/// Minimum interval of wake-ups for new events or log output. State changes are sent at once.
const GROWTH_EVERY_MS: u64 = 25;
/// Size of the buffer for notifications.
const BUFFER_BYTES: usize = 16 << 10;

/// Watches the folders of all tasks that are not forgotten.
#[derive(Debug)]
pub struct TaskFolderWatcher {
    loop_events: Sender<NodeLoopEvent>,
    /// `None` before the first task.
    inotify: Option<Arc<OwnedFd>>,
    /// Watch descriptor of each task's folder.
    watched: BTreeMap<TaskId, i32>,
    /// Whether the warning about unwatched folders has been logged.
    has_warned: bool,
}

impl TaskFolderWatcher {
    /// Returns a watcher that wakes the loop through `loop_events`.
    #[must_use]
    pub fn new(loop_events: Sender<NodeLoopEvent>) -> Self {
        Self {
            loop_events,
            inotify: None,
            watched: BTreeMap::new(),
            has_warned: false,
        }
    }

    /// Watches the folders of all tasks that are not forgotten, and no others. Call it before the
    /// folders are polled: a change in between then causes a notification.
    pub fn follow(&mut self, ledger: &Ledger) {
        if let Some(inotify) = &self.inotify {
            self.watched.retain(|id, watch| {
                let entry = ledger.entries.get(id);
                let stays = entry.is_some_and(|entry| !entry.is_forgotten());
                if !stays {
                    // The kernel has already removed the watch of a deleted folder.
                    let _ = inotify::remove_watch(inotify, *watch);
                }
                stays
            });
        }
        for (id, entry) in &ledger.entries {
            if !entry.is_forgotten() && !self.watched.contains_key(id) {
                match self.watch(&entry.folder) {
                    Ok(watch) => {
                        self.watched.insert(*id, watch);
                    }
                    // A task that could not be launched may have no folder.
                    Err(Errno::NOENT) => {}
                    Err(error) => self.warn(error),
                }
            }
        }
    }

    /// Whether changes in this task's folder cause notifications.
    #[must_use]
    pub fn is_watching(&self, task: TaskId) -> bool {
        self.watched.contains_key(&task)
    }

    fn watch(&mut self, folder: &NodeTaskFolder) -> Result<i32, Errno> {
        let inotify = match &self.inotify {
            Some(inotify) => inotify,
            None => self.inotify.insert(self.begin()?),
        };
        let flags = WatchFlags::CREATE
            | WatchFlags::MODIFY
            | WatchFlags::MOVED_TO
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR
            | WatchFlags::DONT_FOLLOW;
        inotify::add_watch(inotify, folder.path(), flags)
    }

    /// Creates the inotify instance and the thread that reads it.
    fn begin(&self) -> Result<Arc<OwnedFd>, Errno> {
        let inotify = Arc::new(inotify::init(CreateFlags::CLOEXEC)?);
        let (heard, loop_events) = (Arc::clone(&inotify), self.loop_events.clone());
        let listening = thread::Builder::new()
            .name("watcher".to_owned())
            .spawn(move || listen(&heard, &loop_events));
        listening.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        Ok(inotify)
    }

    fn warn(&mut self, error: Errno) {
        if !std::mem::replace(&mut self.has_warned, true) {
            tracing::warn!(%error, "the kernel watches no more folders (fs.inotify.max_user_instances, max_user_watches); they are looked at again and again");
        }
    }
}

/// Forwards notifications to the node loop until that loop has ended; the next send then fails.
fn listen(inotify: &OwnedFd, loop_events: &Sender<NodeLoopEvent>) {
    let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
    let mut reader = inotify::Reader::new(inotify, &mut buffer);
    // Earliest time of the next `Grown`, and whether there is growth to announce.
    let (mut grows_at_ms, mut has_grown) = (0_u64, false);
    loop {
        let left_ms = grows_at_ms.saturating_sub(clock::boottime_ms());
        let is_readable = wait(inotify, has_grown.then(|| Duration::from_millis(left_ms)));
        let heard = if is_readable {
            read(&mut reader)
        } else {
            Ok(None)
        };
        let heard = match heard {
            Ok(heard) => heard,
            Err(error) => {
                tracing::error!(%error, "notifications of tasks' folders cannot be read");
                return;
            }
        };
        has_grown |= heard == Some(TaskFolderEvent::Growth);
        let now_ms = clock::boottime_ms();
        let event = match heard {
            Some(TaskFolderEvent::StateChange) => NodeLoopEvent::Look,
            _ if has_grown && now_ms >= grows_at_ms => NodeLoopEvent::Grown,
            _ => {
                thread::sleep(GATHER);
                continue;
            }
        };
        // The poll after a `Look` finds growth too, so it counts as announced.
        (grows_at_ms, has_grown) = (now_ms + GROWTH_EVERY_MS, false);
        if loop_events.send(event).is_err() {
            return;
        }
        thread::sleep(GATHER);
    }
}

/// Waits for a notification, at most `longest` if it is given. Returns whether one can be read.
fn wait(inotify: &OwnedFd, longest: Option<Duration>) -> bool {
    let mut fds = [PollFd::new(inotify, PollFlags::IN)];
    let longest = longest.map(|longest| Timespec::try_from(longest).expect("a moment"));
    match poll(&mut fds, longest.as_ref()) {
        Ok(ready) => ready > 0,
        // Interrupted by a signal. Without a limit, the following read waits.
        Err(_) => longest.is_none(),
    }
}

/// Returns the most important notification of those that can be read.
fn read(reader: &mut inotify::Reader<'_, &OwnedFd>) -> Result<Option<TaskFolderEvent>, Errno> {
    let mut heard = None;
    loop {
        match reader.next() {
            Ok(event) => {
                let name = event.file_name().and_then(|name| name.to_str().ok());
                heard = heard.max(meaning(event.events(), name.unwrap_or_default()));
            }
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if reader.is_buffer_empty() {
            return Ok(heard);
        }
    }
}

/// Meaning of a notification, by ascending importance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TaskFolderEvent {
    /// Events or log have grown.
    Growth,
    /// The task has started, was suspended or resumed, or has ended; or its shim has exited.
    StateChange,
}

/// Meaning of the change `events` of the file `name`. `None` for irrelevant changes, such as files
/// that the loop itself has written.
fn meaning(events: ReadFlags, name: &str) -> Option<TaskFolderEvent> {
    if events.contains(ReadFlags::QUEUE_OVERFLOW) {
        return Some(TaskFolderEvent::StateChange);
    }
    let folder = NodeTaskFolder::at("");
    let [shim, exit, lock, events_file] =
        [folder.shim(), folder.exit(), folder.lock(), folder.events()]
            .map(|file| file.path().as_os_str() == name);
    if shim || exit || name == STANDING {
        let is_whole = events.intersects(ReadFlags::MOVED_TO | ReadFlags::CLOSE_WRITE);
        return is_whole.then_some(TaskFolderEvent::StateChange);
    }
    if lock {
        // The shim keeps the file open while it lives; the kernel closes it however the shim ends.
        return events
            .contains(ReadFlags::CLOSE_WRITE)
            .then_some(TaskFolderEvent::StateChange);
    }
    let grows = events.intersects(ReadFlags::CREATE | ReadFlags::MODIFY);
    ((events_file || name == crate::log::CURRENT) && grows).then_some(TaskFolderEvent::Growth)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task_file::TaskFile;
    use muster_model::assignment::{Peers, TaskLaunch};
    use serde_json::json;
    use std::io::Write as _;
    use std::sync::mpsc::{self, Receiver};

    /// Time limit of a test.
    const PATIENCE: Duration = Duration::from_secs(20);
    /// Wait for notifications that must not arrive.
    const A_WHILE: Duration = Duration::from_millis(100);

    fn prepared(ledger: &mut Ledger) -> TaskId {
        let id = "00000000-0000-7000-8000-000000000001";
        let launch: TaskLaunch = serde_json::from_value(json!({
            "task_id": id, "job_id": id, "tenant_id": id, "revision": 1, "role": { "kind": "worker", "rank": 0 },
            "workers": 1, "ps_shards": 0, "gpus": [0], "cpu_milli": 0, "memory_bytes": 0, "secret": "00",
            "spec": { "version": "muster/v1", "name": "x", "command": { "argv": ["true"] } },
            "resume_step": null, "trained_s": 0.0, "grace_ms": 1_000,
        }))
        .expect("a launch");
        ledger
            .prepare(&launch, &Peers::default())
            .expect("our own folder");
        launch.task_id
    }

    fn next(loop_events: &Receiver<NodeLoopEvent>) -> Option<NodeLoopEvent> {
        // One file may cause several events.
        let first = loop_events.recv_timeout(PATIENCE).ok()?;
        let mut newest = first;
        while let Ok(event) = loop_events.recv_timeout(A_WHILE) {
            newest = event;
        }
        Some(newest)
    }

    fn append(file: &TaskFile) {
        writeln!(file.append().expect("our own folder"), "x").expect("written");
    }

    #[test]
    fn start_end_and_output_of_a_task_notify_and_nothing_else() {
        let place = tempfile::tempdir().expect("a folder");
        let mut ledger = Ledger::open(place.path()).expect("our own folder");
        let (sender, loop_events) = mpsc::channel();
        let mut watcher = TaskFolderWatcher::new(sender);
        let id = prepared(&mut ledger);
        assert!(!watcher.is_watching(id));
        watcher.follow(&ledger);
        assert!(watcher.is_watching(id));
        let folder = ledger.entries[&id].folder.clone();
        let shim = folder.lock().hold(true).expect("our own folder");
        for written in [folder.shim(), folder.standing(), folder.exit()] {
            written.write_atomically(&1).expect("our own folder");
            let told = next(&loop_events);
            assert!(
                matches!(told, Some(NodeLoopEvent::Look)),
                "{written:?}: {told:?}"
            );
        }
        for written in [
            folder.events(),
            TaskFile::new(folder.path().join(crate::log::CURRENT)),
        ] {
            append(&written);
            let told = next(&loop_events);
            assert!(
                matches!(told, Some(NodeLoopEvent::Grown)),
                "{written:?}: {told:?}"
            );
        }
        for own in [folder.shipped(), folder.peers()] {
            own.write_atomically(&1).expect("our own folder");
        }
        assert!(crate::shim::is_locked(&folder).is_ok());
        assert!(
            loop_events.recv_timeout(A_WHILE).is_err(),
            "done by the loop"
        );
        drop(shim);
        let told = next(&loop_events);
        assert!(
            matches!(told, Some(NodeLoopEvent::Look)),
            "the shim ends: {told:?}"
        );
        let entry = ledger.entries.get_mut(&id).expect("it is there");
        entry.acknowledged.forgotten_at_unix_ms = Some(1);
        watcher.follow(&ledger);
        assert!(!watcher.is_watching(id));
        folder.exit().remove().expect("our own folder");
        append(&folder.events());
        assert!(
            loop_events.recv_timeout(A_WHILE).is_err(),
            "it is forgotten"
        );
    }
}
