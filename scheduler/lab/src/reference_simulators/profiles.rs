//! Reads published profiles from a folder: measurements of every application on every measured
//! shape.

use super::application::{Application, Epoch};
use super::throughput::{ProfiledStepTime, ThroughputProfile};
use crate::trace::file::{self, FileError};
use muster_sim::scenario::GradientStatistics;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// All applications, and the GPU kinds on which they were measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Profiles {
    /// Names of the GPU kinds, in the order of `Application::measured`.
    pub kinds: Vec<String>,
    pub applications: BTreeMap<String, Application>,
}

/// Reason why the profiles are not usable.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    #[error("read the profile {path}: is --profiles the folder that holds it?")]
    Open {
        path: PathBuf,
        #[source]
        source: FileError,
    },
    #[error("read a row of {path}")]
    Row {
        path: PathBuf,
        #[source]
        source: csv::Error,
    },
    #[error("{path}: {what}")]
    Value { path: PathBuf, what: String },
}

/// Name of the only GPU kind if the profiles name none.
const ONLY_KIND: &str = "gpu";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ApplicationRow {
    app: String,
    init_batch_size: u32,
    max_batch_size: u32,
    min_local_bsz: u32,
    max_local_bsz: u32,
    max_epochs: u32,
    validated_batch_sizes: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ValidationRow {
    app: String,
    batch_size: u32,
    epoch: usize,
    progress: f64,
    iteration: f64,
    #[serde(rename = "metric")]
    _metric: Option<f64>,
    grad_sqr: f64,
    grad_var: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlacementRow {
    app: String,
    gpu_type: Option<String>,
    placement: String,
    #[serde(rename = "num_nodes")]
    _nodes: u32,
    #[serde(rename = "num_replicas")]
    _replicas: u32,
    local_bsz: f64,
    step_time: f64,
    sync_time: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SizeRow {
    app: String,
    gpu_type: Option<String>,
    num_nodes: u32,
    num_replicas: u32,
    local_bsz: f64,
    step_time: f64,
    sync_time: f64,
}

/// Path of a file in the folder; in the folder `pollux` beside it if only that one has the file.
fn shared(folder: &Path, name: &str) -> PathBuf {
    let here = folder.join(name);
    if file::find(&here).is_some() {
        return here;
    }
    let beside = folder.parent().map(|up| up.join("pollux").join(name));
    let beside = beside.filter(|path| file::find(path).is_some());
    beside.unwrap_or(here)
}

impl Profiles {
    /// Reads `placements.csv` and `scalability.csv`, and if present `throughput_table.csv`,
    /// `applications.csv` and `validation.csv`. The last two may also be in the folder `pollux`
    /// beside `folder`, because Sia's applications are those of Pollux. Each file may be compressed
    /// ([`file::read_text`]).
    ///
    /// # Errors
    /// [`ProfileError`] if a file is missing or a row is invalid.
    pub fn read(folder: &Path) -> Result<Self, ProfileError> {
        let mut profiles = Self {
            kinds: Vec::new(),
            applications: BTreeMap::new(),
        };
        profiles.read_applications(&shared(folder, "applications.csv"))?;
        profiles.read_validation(&shared(folder, "validation.csv"))?;
        profiles.read_placements(&folder.join("placements.csv"))?;
        let table = folder.join("throughput_table.csv");
        let has_table = file::find(&table).is_some();
        let sizes = if has_table {
            table
        } else {
            folder.join("scalability.csv")
        };
        profiles.read_sizes(&sizes)?;
        for application in profiles.applications.values_mut() {
            let kinds = profiles.kinds.len();
            application
                .measured
                .resize_with(kinds, ThroughputProfile::default);
            for measured in &mut application.measured {
                measured.finish(!has_table);
            }
        }
        Ok(profiles)
    }

    /// Index of a GPU kind by its name. If the profiles name no kinds, every name gives the only
    /// one.
    #[must_use]
    pub fn kind(&self, name: &str) -> Option<u16> {
        let only = self.kinds.len() == 1 && self.kinds[0] == ONLY_KIND;
        let found = self.kinds.iter().position(|kind| kind == name || only)?;
        u16::try_from(found).ok()
    }

    fn read_applications(&mut self, path: &Path) -> Result<(), ProfileError> {
        for row in rows::<ApplicationRow>(path)? {
            let row = row?;
            let sizes = row.validated_batch_sizes.trim_start_matches("bs:");
            let validation = sizes
                .split('|')
                .map(|size| {
                    let parsed = size.parse::<u32>();
                    parsed.map(|size| (size, Vec::new())).map_err(|_| {
                        let what = format!(
                            "validated_batch_sizes of {} has {size:?}, which is no whole number",
                            row.app
                        );
                        ProfileError::Value {
                            path: path.to_owned(),
                            what,
                        }
                    })
                })
                .collect::<Result<BTreeMap<u32, Vec<Epoch>>, _>>()?;
            let application = Application {
                name: row.app.clone(),
                init_batch: row.init_batch_size,
                max_batch: row.max_batch_size,
                min_local: row.min_local_bsz,
                max_local: row.max_local_bsz,
                epochs: row.max_epochs,
                validation,
                measured: Vec::new(),
            };
            self.applications.insert(row.app, application);
        }
        Ok(())
    }

    fn read_validation(&mut self, path: &Path) -> Result<(), ProfileError> {
        for row in rows::<ValidationRow>(path)? {
            let row = row?;
            let application = self.application(path, &row.app)?;
            let epochs = application.validation.entry(row.batch_size).or_default();
            if epochs.len() != row.epoch {
                let what = format!(
                    "epoch {} of {} at batch size {} is out of its order, which is 0, 1, 2, ...",
                    row.epoch, row.app, row.batch_size
                );
                return Err(ProfileError::Value {
                    path: path.to_owned(),
                    what,
                });
            }
            epochs.push(Epoch {
                progress: row.progress,
                iteration: row.iteration,
                noise: GradientStatistics {
                    square: row.grad_sqr,
                    variance: row.grad_var,
                },
            });
        }
        Ok(())
    }

    fn read_placements(&mut self, path: &Path) -> Result<(), ProfileError> {
        for row in rows::<PlacementRow>(path)? {
            let row = row?;
            let digits: Option<Vec<u32>> = row
                .placement
                .chars()
                .map(|digit| digit.to_digit(10))
                .collect();
            let digits = digits.ok_or_else(|| ProfileError::Value {
                path: path.to_owned(),
                what: format!(
                    "placement {:?} of {} is not the digits of GPUs on each node",
                    row.placement, row.app
                ),
            })?;
            let time = ProfiledStepTime {
                step_s: row.step_time,
                sync_s: row.sync_time,
            };
            self.measured(path, &row.app, row.gpu_type.as_deref())?
                .add_placement(&digits, row.local_bsz, time);
        }
        Ok(())
    }

    fn read_sizes(&mut self, path: &Path) -> Result<(), ProfileError> {
        for row in rows::<SizeRow>(path)? {
            let row = row?;
            let time = ProfiledStepTime {
                step_s: row.step_time,
                sync_s: row.sync_time,
            };
            self.measured(path, &row.app, row.gpu_type.as_deref())?
                .add_size(row.num_nodes, row.num_replicas, row.local_bsz, time);
        }
        Ok(())
    }

    fn application(&mut self, path: &Path, name: &str) -> Result<&mut Application, ProfileError> {
        self.applications
            .get_mut(name)
            .ok_or_else(|| ProfileError::Value {
                path: path.to_owned(),
                what: format!("application {name:?} is not in applications.csv"),
            })
    }

    fn measured(
        &mut self,
        path: &Path,
        application: &str,
        kind: Option<&str>,
    ) -> Result<&mut ThroughputProfile, ProfileError> {
        let name = kind.unwrap_or(ONLY_KIND);
        let known = self.kinds.iter().position(|kind| kind == name);
        let kind = known.unwrap_or_else(|| {
            self.kinds.push(name.to_owned());
            self.kinds.len() - 1
        });
        let application = self.application(path, application)?;
        if application.measured.len() <= kind {
            application
                .measured
                .resize_with(kind + 1, ThroughputProfile::default);
        }
        Ok(&mut application.measured[kind])
    }
}

/// Rows of a file, each as its type or as an error that names file, line and column.
fn rows<T: DeserializeOwned>(
    path: &Path,
) -> Result<impl Iterator<Item = Result<T, ProfileError>>, ProfileError> {
    let text = file::read_text(path).map_err(|source| ProfileError::Open {
        path: path.to_owned(),
        source,
    })?;
    let reader = csv::Reader::from_reader(Cursor::new(text));
    let path = path.to_owned();
    Ok(reader.into_deserialize().map(move |row| {
        row.map_err(|source| ProfileError::Row {
            path: path.clone(),
            source,
        })
    }))
}
