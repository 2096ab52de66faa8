//! CPU slots: equal shares of a machine, each in place of a GPU.
//!
//! Their model name is configured: machines of different speed are then different GPU kinds.

use muster_model::node::{Gpu, GpuKind};
use std::fs;

pub(super) fn slots(count: u32, memory_bytes: u64, model: &str) -> Vec<Gpu> {
    (0..count)
        .map(|index| Gpu {
            index,
            kind: GpuKind::CpuSlot,
            model: model.to_owned(),
            memory_bytes: memory_bytes / u64::from(count),
            compute_capability: None,
        })
        .collect()
}

/// Returns the machine's memory in bytes, or the container's limit if that is lower.
pub(super) fn memory_bytes() -> u64 {
    let machine = fs::read_to_string("/proc/meminfo")
        .ok()
        .and_then(|text| total(&text))
        .unwrap_or(0);
    let limit = fs::read_to_string("/sys/fs/cgroup/memory.max")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    limit.map_or(machine, |limit: u64| limit.min(machine))
}

fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_share_the_memory() {
        let slots = slots(4, 4_096, "cpu-2026");
        assert_eq!(
            slots.iter().map(|slot| slot.index).collect::<Vec<_>>(),
            [0, 1, 2, 3]
        );
        assert!(slots.iter().all(|slot| slot.model == "cpu-2026"));
        assert!(
            slots
                .iter()
                .all(|slot| slot.kind == GpuKind::CpuSlot && slot.memory_bytes == 1_024)
        );
    }

    #[test]
    fn memory_is_read_in_bytes() {
        assert_eq!(
            total("MemTotal:       24576 kB\nMemFree: 1 kB\n"),
            Some(24_576 * 1_024)
        );
        assert!(memory_bytes() > 0);
    }
}
