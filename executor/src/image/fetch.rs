//! The helper process that pulls one image: `muster-executor fetch-image`. It reads what a registry
//! and an image send, so that neither can exhaust the daemon's memory or its descriptors.
//!
//! It writes a line of JSON per message to its standard output.

use super::error::{Fault, ImageError};
use super::folders::{CacheFolders, FILES, ImageInfo, blob_key};
use super::registry::{ImageConfig, Registry, ResolvedImage};
use super::unpack::Unpacking;
use futures::StreamExt as _;
use muster_archive::digest_of;
use muster_model::error_chain::chain;
use oci_client::manifest::OciDescriptor;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use serde::{Deserialize, Serialize};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::future::Future;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Limit of the helper's address space.
const MEMORY_BYTES: u64 = 8 << 30;
/// Number of layers that are downloaded at a time.
const AT_A_TIME: usize = 3;
/// Maximum length of the text of a message, in characters.
const MAX_TEXT_CHARS: usize = 1_200;
const SAY_EVERY: Duration = Duration::from_secs(5);
/// Least number of bytes that must arrive in [`SLOW_AFTER`], or in the time of the setting
/// `image_patience_ms` if that is longer. A slow registry would otherwise keep a place for pulls.
const LEAST_BYTES: u64 = 1 << 20;
const SLOW_AFTER: Duration = Duration::from_secs(60);
/// Time limit of answers besides layers, in addition to that of repeated requests.
const ANSWER: Duration = Duration::from_secs(120);
/// Time for which requests for a tag are repeated, if the node has an image of this tag.
const PATIENCE_WITH_CACHED: Duration = Duration::from_secs(3);

/// Arguments of the hidden subcommand `fetch-image`; the daemon passes them.
#[derive(Debug, Clone, clap::Args)]
pub struct FetchArguments {
    #[arg(long)]
    pub image: String,
    #[arg(long)]
    pub cache: PathBuf,
    #[arg(long)]
    pub limit_bytes: u64,
    #[arg(long)]
    pub patience_ms: u64,
    #[arg(long)]
    pub auth_file: Option<PathBuf>,
    #[arg(long)]
    pub insecure: Vec<String>,
}

/// Message of the helper to the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum FetchMessage {
    /// Progress, for the log of the task.
    Said {
        text: String,
    },
    /// The cache has the image.
    Done {
        digest: String,
    },
    Failed {
        message: String,
        fault: Fault,
    },
}

/// Pulls the image, unless the cache has it. The result is the last message.
#[must_use]
pub fn run(arguments: &FetchArguments) -> i32 {
    // The helper must end with its daemon: the next daemon opens the cache without other writers.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    let runtime = limit_memory().and_then(|()| {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
    });
    let fetched = match runtime {
        Ok(runtime) => runtime.block_on(fetch(arguments)),
        Err(error) => Err(ImageError::Helper(error)),
    };
    match fetched {
        Ok(digest) => say(&FetchMessage::Done { digest }),
        Err(error) => say(&FetchMessage::Failed {
            message: cut(chain(&error)),
            fault: error.fault(),
        }),
    }
    0
}

/// Limits the address space. A lower limit of the node stays.
fn limit_memory() -> io::Result<()> {
    let maximum = getrlimit(Resource::As).maximum;
    let most = maximum.map_or(MEMORY_BYTES, |maximum| maximum.min(MEMORY_BYTES));
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(most),
    };
    Ok(setrlimit(Resource::As, limit)?)
}

/// Returns the beginning of a text, so that its message fits into a line that the daemon reads. A
/// character may have six bytes in JSON.
fn cut(text: String) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        None => text,
        Some((at, _)) => format!("{}…", &text[..at]),
    }
}

fn say(message: &FetchMessage) {
    let text = serde_json::to_string(message).expect("a message is JSON");
    // Without a daemon the process ends anyway.
    let _ = writeln!(io::stdout(), "{text}");
}

fn tell(text: String) {
    say(&FetchMessage::Said { text: cut(text) });
}

async fn fetch(arguments: &FetchArguments) -> Result<String, ImageError> {
    let cache = CacheFolders::at(&arguments.cache);
    let image = &arguments.image;
    let patience = Duration::from_millis(arguments.patience_ms);
    let registry = Registry::of(
        image,
        &arguments.insecure,
        arguments.auth_file.as_deref(),
        patience,
    )?;
    // Only an image that was pulled under this name. The lists of images that a tenant may use
    // contain names, and its digest under another name must not give access to an image.
    let last = cache.last_digest(image);
    let last = last.filter(|digest| cache.info(digest).is_some());
    if registry.has_fixed_digest()
        && let Some(last) = last
    {
        return Ok(last);
    }
    let patience = match last {
        Some(_) => PATIENCE_WITH_CACHED.min(patience),
        None => patience,
    };
    let resolved = in_time(&registry, patience, registry.resolve(patience)).await;
    let found = match (resolved, last) {
        (Err(ImageError::Unreachable { registry, why, .. }), Some(last)) => {
            tell(format!(
                "registry {registry} cannot be reached ({why}); the task runs in {last}, which this node has under the same name"
            ));
            return Ok(last);
        }
        (found, _) => found?,
    };
    // The repository has sent all layers of the image before, and not only its manifest.
    let in_repository = format!("{}@{}", registry.repository(), found.digest);
    let is_known = || {
        cache.info(&found.digest).is_some()
            && cache.last_digest(&in_repository).as_ref() == Some(&found.digest)
    };
    if !is_known() {
        let lock = lock(&cache, &found.digest)?;
        // Another task may have pulled it meanwhile.
        if !is_known() {
            pull(arguments, &cache, &registry, &found).await?;
            cache.record_name(&in_repository, &found.digest)?;
        }
        drop(lock);
    }
    cache.record_name(image, &found.digest)?;
    Ok(found.digest)
}

/// Holds back other helpers that pull the same image.
fn lock(cache: &CacheFolders, digest: &str) -> Result<File, ImageError> {
    let locks = cache.locks();
    fs::create_dir_all(&locks).map_err(ImageError::at(&locks))?;
    let path = locks.join(digest.replace([':', '/'], "-"));
    let file = File::create(&path).map_err(ImageError::at(&path))?;
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        tell("another task of this node pulls the same image".to_owned());
        flock(&file, FlockOperation::LockExclusive)
            .map_err(io::Error::from)
            .map_err(ImageError::at(&path))?;
    }
    Ok(file)
}

async fn pull(
    arguments: &FetchArguments,
    cache: &CacheFolders,
    registry: &Registry,
    found: &ResolvedImage,
) -> Result<(), ImageError> {
    let patience = Duration::from_millis(arguments.patience_ms);
    let config = in_time(registry, patience, registry.config(&found.manifest)).await?;
    let layers = &found.manifest.layers;
    let all = total_size(arguments, layers)?;
    let repository = registry.repository();
    let missing = missing(cache, &repository, layers);
    // Each layer once, so it is at most the size of all.
    let total = missing.iter().map(|layer| size(layer)).sum::<u64>();
    tell(format!(
        "pulling {} ({}): {} of {} layers, {}",
        arguments.image,
        found.digest,
        missing.len(),
        layers.len(),
        human(total)
    ));
    let kept = layers
        .iter()
        .map(|layer| blob_key(&repository, &layer.digest));
    let mut kept: BTreeSet<String> = kept.collect();
    kept.insert(found.digest.clone());
    // Compressed layers have about half the size of their files.
    let wanted = total.saturating_add(all.saturating_mul(2));
    cache.make_room(wanted, arguments.limit_bytes, &kept);
    let pace = MinimumPace::new(patience);
    download(cache, registry, (&missing, total), pace).await?;
    if cache.info(&found.digest).is_some() {
        // Another repository has sent the same files.
        return Ok(());
    }
    let unfinished = cache.begin()?;
    let unpacked = unpack(arguments, cache, (&repository, layers), &unfinished);
    let finished = unpacked.and_then(|bytes| {
        let info = info(arguments, found, config, bytes);
        cache.keep(&unfinished, &info)
    });
    if finished.is_err() {
        // The next start tries again.
        let _ = crate::gc::remove_folder(&unfinished);
    }
    finished?;
    cache.make_room(0, arguments.limit_bytes, &kept);
    Ok(())
}

/// Returns the size of all compressed layers.
///
/// # Errors
/// If it is above the limit of the whole image, or a manifest has a negative size.
fn total_size(arguments: &FetchArguments, layers: &[OciDescriptor]) -> Result<u64, ImageError> {
    let mut total = 0_u64;
    for layer in layers {
        let size = u64::try_from(layer.size).map_err(|_| ImageError::Format {
            image: arguments.image.clone(),
            why: format!("its layer {} has a negative size", layer.digest),
        })?;
        total = total
            .checked_add(size)
            .filter(|total| *total <= arguments.limit_bytes)
            .ok_or(ImageError::Large(arguments.limit_bytes))?;
    }
    Ok(total)
}

/// Layers that this repository has not sent yet or that have changed in the cache, each once.
fn missing<'l>(
    cache: &CacheFolders,
    repository: &str,
    layers: &'l [OciDescriptor],
) -> Vec<&'l OciDescriptor> {
    let by_digest: BTreeMap<&str, &OciDescriptor> = layers
        .iter()
        .map(|layer| (layer.digest.as_str(), layer))
        .collect();
    let mut missing = Vec::new();
    for layer in by_digest.into_values() {
        let blob = cache.blob(&blob_key(repository, &layer.digest));
        if is_intact(&blob, &layer.digest).unwrap_or(false) {
            cache.touch(&blob);
        } else {
            missing.push(layer);
        }
    }
    missing
}

/// Whether a layer of the cache has its digest. Digests of other kinds than SHA-256 are verified
/// only by the download.
fn is_intact(blob: &Path, digest: &str) -> io::Result<bool> {
    let file = File::open(blob)?;
    match digest.strip_prefix("sha256:") {
        Some(expected) => Ok(digest_of(file)? == expected),
        None => Ok(true),
    }
}

/// Ends a request that a registry answers too slowly.
async fn in_time<T>(
    registry: &Registry,
    patience: Duration,
    request: impl Future<Output = Result<T, ImageError>>,
) -> Result<T, ImageError> {
    // An index and the manifest of its entry are two requests.
    let limit = patience * 2 + ANSWER;
    match timeout(limit, request).await {
        Ok(answer) => answer,
        Err(_) => Err(ImageError::Unreachable {
            registry: registry.name().to_owned(),
            waited_s: limit.as_secs(),
            why: "it answers too slowly".to_owned(),
        }),
    }
}

/// Test of the bytes that arrive: [`LEAST_BYTES`] within a number of ticks.
#[derive(Debug)]
struct MinimumPace {
    limit_ticks: u64,
    ticks: u64,
    from_bytes: u64,
}

impl MinimumPace {
    fn new(patience: Duration) -> Self {
        let limit = patience.max(SLOW_AFTER);
        Self {
            limit_ticks: limit.as_secs() / SAY_EVERY.as_secs(),
            ticks: 0,
            from_bytes: 0,
        }
    }

    /// Takes the number of bytes that have arrived until a tick. Returns whether it is too small.
    fn is_too_slow(&mut self, received: u64) -> bool {
        self.ticks += 1;
        if received >= self.from_bytes + LEAST_BYTES {
            (self.ticks, self.from_bytes) = (0, received);
        }
        self.ticks >= self.limit_ticks
    }

    fn error(&self, registry: &Registry) -> ImageError {
        ImageError::Unreachable {
            registry: registry.name().to_owned(),
            waited_s: self.limit_ticks * SAY_EVERY.as_secs(),
            why: "it sent less than 1 MiB of the image's layers in this time".to_owned(),
        }
    }
}

async fn download(
    cache: &CacheFolders,
    registry: &Registry,
    (missing, total): (&[&OciDescriptor], u64),
    mut pace: MinimumPace,
) -> Result<(), ImageError> {
    let (done, received) = (Cell::new(0_i64), Cell::new(0_u64));
    let add = |bytes: i64| {
        done.set(done.get() + bytes);
        received.set(received.get() + u64::try_from(bytes).unwrap_or(0));
    };
    let folder = cache.begin()?;
    let repository = registry.repository();
    let downloads = missing.iter().map(|layer| {
        let blob = cache.blob(&blob_key(&repository, &layer.digest));
        let half = folder.join(blob.file_name().unwrap_or_default());
        let add = &add;
        async move {
            registry.layer(layer, &half, add).await?;
            // A layer under its final name is complete, even after a crash of the machine.
            File::open(&half)
                .and_then(|file| file.sync_all())
                .and_then(|()| fs::rename(&half, &blob))
                .map_err(ImageError::at(blob))
        }
    });
    let mut downloads = futures::stream::iter(downloads).buffer_unordered(AT_A_TIME);
    let mut ticks = interval(SAY_EVERY);
    // No byte arrives while the disk blocks this thread, so missed ticks do not count.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let fetched = loop {
        tokio::select! {
            next = downloads.next() => match next {
                None => break Ok(()),
                Some(Ok(())) => {}
                Some(Err(error)) => break Err(error),
            },
            _ = ticks.tick() => {
                let done = u64::try_from(done.get()).unwrap_or(0);
                tell(format!("pulled {} of {}", human(done), human(total)));
                if pace.is_too_slow(received.get()) {
                    break Err(pace.error(registry));
                }
            }
        }
    };
    drop(downloads);
    let _ = fs::remove_dir_all(&folder);
    fetched
}

fn unpack(
    arguments: &FetchArguments,
    cache: &CacheFolders,
    (repository, layers): (&str, &[OciDescriptor]),
    unfinished: &Path,
) -> Result<u64, ImageError> {
    tell("unpacking it".to_owned());
    let files = unfinished.join(FILES);
    fs::create_dir(&files).map_err(ImageError::at(&files))?;
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&files, mode).map_err(ImageError::at(&files))?;
    let mut unpacking = Unpacking::into(&files, arguments.limit_bytes)?;
    for layer in layers {
        let blob = cache.blob(&blob_key(repository, &layer.digest));
        unpacking.apply(File::open(&blob).map_err(ImageError::at(&blob))?)?;
    }
    Ok(unpacking.bytes())
}

fn info(
    arguments: &FetchArguments,
    found: &ResolvedImage,
    config: ImageConfig,
    bytes: u64,
) -> ImageInfo {
    let run = config.config.unwrap_or_default();
    let pairs = run.env.unwrap_or_default();
    let pairs = pairs.iter().filter_map(|pair| pair.split_once('='));
    ImageInfo {
        image: arguments.image.clone(),
        digest: found.digest.clone(),
        env: pairs
            .filter(|(name, value)| !name.is_empty() && !value.contains('\0'))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        working_dir: run
            .working_dir
            .map(PathBuf::from)
            .filter(|path| path.is_absolute() && path != Path::new("/")),
        bytes,
    }
}

fn size(layer: &OciDescriptor) -> u64 {
    u64::try_from(layer.size).unwrap_or(0)
}

/// Size with one decimal in the largest unit below it.
fn human(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["bytes", "KiB", "MiB", "GiB"];
    let mut value = bytes;
    let mut tenths = 0;
    let mut unit = 0;
    while value >= 1024 && unit + 1 < UNITS.len() {
        tenths = value % 1024 * 10 / 1024;
        value /= 1024;
        unit += 1;
    }
    if unit == 0 {
        format!("{value} bytes")
    } else {
        format!("{value}.{tenths} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers(sizes: &[i64]) -> Vec<OciDescriptor> {
        let layer = |size: &i64| OciDescriptor {
            size: *size,
            ..OciDescriptor::default()
        };
        sizes.iter().map(layer).collect()
    }

    #[test]
    fn longest_message_fits_into_a_line_of_the_daemon() {
        let message = FetchMessage::Failed {
            message: cut("\u{1}".repeat(100_000)),
            fault: Fault::Passing,
        };
        let line = serde_json::to_string(&message).expect("JSON");
        assert!(line.len() < 16 << 10, "{}", line.len());
        assert_eq!(cut("größe".to_owned()), "größe");
        assert!(cut("ö".repeat(1_201)).ends_with("ö…"));
    }

    #[test]
    fn sizes_of_layers_are_limited_together() {
        let arguments = FetchArguments {
            image: "r.io/x:1".to_owned(),
            cache: PathBuf::new(),
            limit_bytes: 10,
            patience_ms: 0,
            auth_file: None,
            insecure: Vec::new(),
        };
        let total = |sizes: &[i64]| total_size(&arguments, &layers(sizes));
        assert_eq!(total(&[4, 6]).expect("it fits"), 10);
        for large in [&[4, 7][..], &[i64::MAX, i64::MAX, i64::MAX]] {
            let error = total(large).expect_err("too large");
            assert!(matches!(error, ImageError::Large(10)), "{error}");
        }
        let error = total(&[4, -1]).expect_err("negative");
        assert!(matches!(error, ImageError::Format { .. }), "{error}");
    }

    #[test]
    fn registry_below_the_least_pace_is_too_slow() {
        let mut pace = MinimumPace::new(Duration::ZERO);
        for tick in 1..12 {
            assert!(!pace.is_too_slow(tick * 10_000), "{tick}");
        }
        assert!(pace.is_too_slow(120_000));
        let mut pace = MinimumPace::new(Duration::from_secs(180));
        let slow = (1..=360).find(|tick| pace.is_too_slow(tick * 40_000));
        assert_eq!(slow, None, "1 MiB in 135 s is enough");
    }

    #[test]
    fn changed_layer_of_cache_is_not_intact() {
        let place = tempfile::tempdir().expect("a folder");
        let blob = place.path().join("blob");
        let digest = digest_of(&b"layer"[..]).expect("read");
        let digest = format!("sha256:{digest}");
        assert!(is_intact(&blob, &digest).is_err());
        fs::write(&blob, "layer").expect("written");
        assert!(is_intact(&blob, &digest).expect("read"));
        fs::write(&blob, "laye").expect("written");
        assert!(!is_intact(&blob, &digest).expect("read"));
    }

    #[test]
    fn repositories_share_no_layers() {
        let cache = CacheFolders::at("/images");
        let [one, other, again] = ["r.io/a/b", "r.io/a-b", "r.io/a/b"]
            .map(|repository| cache.blob(&blob_key(repository, "sha256:aa")));
        assert_ne!(one, other);
        assert_eq!(one, again);
    }
}
