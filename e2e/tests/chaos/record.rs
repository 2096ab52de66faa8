//! Events so far: faults, broken promises, and whether the cluster is quiet.

use crate::schedule::{ChaosFault, ScheduledFault};
use muster_e2e::clock;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use time::{Duration, OffsetDateTime};

/// Maximum number of recorded broken promises; the first ones matter most.
const KEPT: usize = 60;

/// Fault that was carried out.
#[derive(Debug, Clone)]
pub struct InjectedFault {
    pub planned: ScheduledFault,
    pub from: OffsetDateTime,
    /// `None` while it lasts.
    pub until: Option<OffsetDateTime>,
    /// Affected processes or places.
    pub met: String,
}

impl InjectedFault {
    /// Whether it blocks one of these processes, or the writes of this node.
    pub fn hinders(&self, pids: &[Option<i32>], node: &str) -> bool {
        match self.planned.fault {
            ChaosFault::Stop(_) | ChaosFault::StopNode(_) => pids.iter().flatten().any(|pid| {
                let pid = pid.to_string();
                self.met.split([' ', ',']).any(|word| word == pid)
            }),
            ChaosFault::StallDisk(host) | ChaosFault::SlowDisk(host) => host.to_string() == node,
            _ => false,
        }
    }
}

#[derive(Debug)]
pub struct FaultRecord {
    began: OffsetDateTime,
    faults: Mutex<Vec<InjectedFault>>,
    broken: Mutex<Vec<String>>,
}

impl FaultRecord {
    pub fn begin() -> Self {
        Self {
            began: clock::now(),
            faults: Mutex::default(),
            broken: Mutex::default(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        clock::now() - self.began
    }

    /// Records the start of a fault.
    pub fn begun(&self, planned: ScheduledFault, met: String) -> usize {
        let mut faults = self.faults.lock().expect("no panic");
        let from = clock::now();
        let until = (planned.for_ms == 0).then_some(from);
        faults.push(InjectedFault {
            planned,
            from,
            until,
            met,
        });
        faults.len() - 1
    }

    pub fn met(&self, fault: usize, met: String) {
        self.faults.lock().expect("no panic")[fault].met = met;
    }

    pub fn healed(&self, fault: usize) {
        let mut faults = self.faults.lock().expect("no panic");
        faults[fault].until = Some(clock::now());
    }

    pub fn faults(&self) -> Vec<InjectedFault> {
        self.faults.lock().expect("no panic").clone()
    }

    /// Time since which no fault is active; `None` while one is.
    pub fn calm_since(&self) -> Option<OffsetDateTime> {
        let faults = self.faults.lock().expect("no panic");
        let ends: Option<Vec<_>> = faults.iter().map(|fault| fault.until).collect();
        Some(ends?.into_iter().max().unwrap_or(self.began))
    }

    /// Records and prints a broken promise.
    pub fn broke(&self, what: &str) {
        let at = self.elapsed();
        let line = format!("{:.1} s: {what}", at.as_seconds_f64());
        let mut broken = self.broken.lock().expect("no panic");
        if broken.len() < KEPT {
            eprintln!("chaos: BROKEN at {line}");
            broken.push(line);
        }
    }

    pub fn broken(&self) -> Vec<String> {
        self.broken.lock().expect("no panic").clone()
    }

    /// Number of faults so far, by kind.
    pub fn counts(&self) -> String {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for fault in self.faults() {
            *counts.entry(fault.planned.fault.kind()).or_default() += 1;
        }
        let told = counts.iter().map(|(kind, count)| format!("{kind} {count}"));
        told.collect::<Vec<_>>().join(", ")
    }

    /// All faults with their victims, one line each.
    pub fn history(&self) -> String {
        let mut text = String::new();
        for fault in self.faults() {
            let at = (fault.from - self.began).as_seconds_f64();
            writeln!(text, "{at:.1} s ({}): {}", fault.planned, fault.met).expect("a string");
        }
        text
    }
}
