//! Decisions from measurements of the disk. Pure.

use super::measure::Disk;
use muster_model::id::TaskId;
use muster_model::task::Outcome;
use std::collections::BTreeMap;
use std::io;

/// Settings for the disk.
#[derive(Debug, Clone, Copy)]
pub(super) struct DiskRules {
    /// Bytes of the disk to keep free; 0 disables all rules about the disk.
    pub reserve_bytes: u64,
    /// Maximum size of one task's folder in bytes.
    pub task_bytes: Option<u64>,
}

/// Whether the node accepts tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Fitness {
    /// Reason why it accepts none. The text is unchanged until it accepts tasks again.
    pub unfit: Option<String>,
}

impl Fitness {
    /// Returns the state after a measurement.
    pub fn after(self, measured: &io::Result<Disk>, rules: &DiskRules) -> Self {
        if rules.reserve_bytes == 0 {
            return Self::default();
        }
        let unfit = match measured {
            Err(error) => self
                .unfit
                .or_else(|| Some(format!("its data folder cannot be written: {error}"))),
            Ok(disk) if disk.free_bytes >= rules.reserve_bytes => None,
            Ok(disk) if disk.free_bytes < rules.reserve_bytes / 2 => {
                self.unfit.or_else(|| Some(too_little(*disk, rules)))
            }
            Ok(_) => self.unfit,
        };
        Self { unfit }
    }
}

impl DiskRules {
    /// Whether a task must end so that the others can continue.
    pub fn is_emergency(&self, disk: Disk) -> bool {
        disk.free_bytes < self.reserve_bytes / 4
    }

    /// Returns the tasks whose folders exceed the limit, each with its outcome.
    pub fn over_limit(&self, sizes: &BTreeMap<TaskId, u64>) -> Vec<(TaskId, Outcome)> {
        let Some(limit) = self.task_bytes else {
            return Vec::new();
        };
        let over = sizes.iter().filter(|(_, held)| **held > limit);
        let ends = over.map(|(task, held)| {
            let (held, limit) = (bytes(*held), bytes(limit));
            let message = format!("its folder holds {held}, the limit is {limit}");
            (*task, Outcome::over_limit(message))
        });
        ends.collect()
    }

    /// Returns the task with the largest folder and its outcome. `None` if the folder is smaller
    /// than its share of the missing space. Other data then fills the disk, and an end of the task
    /// would not help.
    pub fn largest(&self, sizes: &BTreeMap<TaskId, u64>, disk: Disk) -> Option<(TaskId, Outcome)> {
        let (task, held) = sizes.iter().max_by_key(|(_, held)| **held)?;
        let missing = self.reserve_bytes.min(disk.total_bytes);
        let missing = missing.saturating_sub(disk.free_bytes);
        if held.saturating_mul(sizes.len() as u64) < missing {
            return None;
        }
        let message = format!(
            "its folder holds {}, the most of the {} tasks there, and the disk of its node has {} free of {}",
            bytes(*held),
            sizes.len(),
            bytes(disk.free_bytes),
            bytes(disk.total_bytes)
        );
        Some((*task, Outcome::over_limit(message)))
    }
}

fn too_little(disk: Disk, rules: &DiskRules) -> String {
    format!(
        "its disk has {} free of {}; it takes tasks again above {}",
        bytes(disk.free_bytes),
        bytes(disk.total_bytes),
        bytes(rules.reserve_bytes)
    )
}

/// Formats a size, such as `12 MiB`.
fn bytes(count: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let unit = UNITS.iter().find(|(size, _)| count >= *size);
    match unit {
        None => format!("{count} bytes"),
        Some((size, name)) if count >= size * 10 => format!("{} {name}", count / size),
        Some((size, name)) => {
            let tenths = u128::from(count) * 10 / u128::from(*size);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const MIB: u64 = 1 << 20;
    const RULES: DiskRules = DiskRules {
        reserve_bytes: 256 * MIB,
        task_bytes: Some(10 << 30),
    };

    fn disk(free_bytes: u64) -> Disk {
        Disk {
            free_bytes,
            total_bytes: 100 << 30,
        }
    }

    fn id(number: u128) -> TaskId {
        TaskId(Uuid::from_u128(number))
    }

    fn message(end: Option<&(TaskId, Outcome)>) -> (TaskId, String) {
        let (task, outcome) = end.expect("one ends");
        (*task, outcome.to_string())
    }

    #[test]
    fn node_closes_below_half_of_its_reserve_and_opens_above_it() {
        let mut fitness = Fitness::default();
        let mut seen = Vec::new();
        for free_mib in [300, 200, 128, 127, 12, 200, 255, 256, 130] {
            fitness = fitness.after(&Ok(disk(free_mib * MIB)), &RULES);
            seen.push(fitness.unfit.is_some());
        }
        assert_eq!(
            seen,
            [false, false, false, true, true, true, true, false, false]
        );
        let full = Fitness::default().after(&Ok(disk(12 * MIB)), &RULES);
        assert_eq!(
            full.unfit.as_deref(),
            Some("its disk has 12 MiB free of 100 GiB; it takes tasks again above 256 MiB")
        );
        let later = full.clone().after(&Ok(disk(11 * MIB)), &RULES);
        assert_eq!(later, full, "the words stay");
        let off = DiskRules {
            reserve_bytes: 0,
            ..RULES
        };
        assert_eq!(full.after(&Ok(disk(0)), &off), Fitness::default());
    }

    #[test]
    fn node_with_an_unwritable_folder_takes_no_tasks() {
        let error = io::Error::from(io::ErrorKind::ReadOnlyFilesystem);
        let closed = Fitness::default().after(&Err(error), &RULES);
        let why = closed.unfit.clone().expect("it is closed");
        assert!(why.contains("cannot be written"), "{why}");
        let open = closed.after(&Ok(disk(1 << 30)), &RULES);
        assert_eq!(open, Fitness::default());
    }

    #[test]
    fn task_over_its_limit_is_ended_by_name() {
        let sizes = BTreeMap::from([(id(1), 10 << 30), (id(2), 12 << 30)]);
        let ends = RULES.over_limit(&sizes);
        assert_eq!(ends.len(), 1);
        let (task, words) = message(ends.first());
        assert_eq!(task, id(2));
        assert!(
            words.contains("its folder holds 12 GiB, the limit is 10 GiB"),
            "{words}"
        );
        let free = DiskRules {
            task_bytes: None,
            ..RULES
        };
        assert_eq!(free.over_limit(&sizes), []);
    }

    #[test]
    fn largest_folder_ends_unless_other_data_fills_the_disk() {
        assert!(RULES.is_emergency(disk(63 * MIB)) && !RULES.is_emergency(disk(64 * MIB)));
        let sizes = BTreeMap::from([(id(1), MIB), (id(2), 900 * MIB), (id(3), 200 * MIB)]);
        let (task, words) = message(RULES.largest(&sizes, disk(10 * MIB)).as_ref());
        assert_eq!(task, id(2));
        assert!(
            words.contains("900 MiB, the most of the 3 tasks"),
            "{words}"
        );
        let small = BTreeMap::from([(id(1), MIB), (id(2), 2 * MIB)]);
        assert_eq!(RULES.largest(&small, disk(10 * MIB)), None);
        assert_eq!(RULES.largest(&BTreeMap::new(), disk(0)), None);
        let tiny = Disk {
            free_bytes: 0,
            total_bytes: 3 * MIB,
        };
        let of_all = BTreeMap::from([(id(1), 3 * MIB)]);
        assert!(RULES.largest(&of_all, tiny).is_some());
    }

    #[test]
    fn bytes_are_formatted_in_the_largest_unit() {
        let told = [0, 1_023, 1_536, 12 * MIB + 5, 3 * MIB, 12 << 30].map(bytes);
        let words = [
            "0 bytes",
            "1023 bytes",
            "1.5 KiB",
            "12 MiB",
            "3.0 MiB",
            "12 GiB",
        ];
        assert_eq!(told, words);
    }
}
