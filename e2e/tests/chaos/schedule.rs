//! Schedule of faults with their start and duration: a pure function of the seed.

use std::fmt;

/// One leads, the other follows and can take over.
pub const DATABASES: usize = 2;
pub const APIS: usize = 2;
pub const SCHEDULERS: usize = 2;
pub const NODES: usize = 3;
/// Pause between the starts of two faults, in milliseconds.
const SHORTEST_PAUSE_MS: u64 = 2_000;
const LONGEST_PAUSE_MS: u64 = 14_000;
/// Duration of a lasting fault, in milliseconds.
const SHORTEST_FAULT_MS: u64 = 1_000;
const LONGEST_FAULT_MS: u64 = 40_000;
/// Each period begins with faults and ends with a quiet time.
pub const PERIOD_MS: u64 = 300_000;
pub const QUIET_MS: u64 = 75_000;

/// One host of the cluster with one daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChaosHost {
    Postgres(usize),
    Api(usize),
    Scheduler(usize),
    Node(usize),
}

impl ChaosHost {
    pub fn all() -> Vec<Self> {
        let mut hosts: Vec<Self> = (0..DATABASES).map(Self::Postgres).collect();
        hosts.extend((0..APIS).map(Self::Api));
        hosts.extend((0..SCHEDULERS).map(Self::Scheduler));
        hosts.extend((0..NODES).map(Self::Node));
        hosts
    }

    /// Nodes and Postgres have their own disks.
    pub fn with_disks() -> Vec<Self> {
        let mut hosts: Vec<Self> = (0..DATABASES).map(Self::Postgres).collect();
        hosts.extend((0..NODES).map(Self::Node));
        hosts
    }

    fn is_database(self) -> bool {
        matches!(self, Self::Postgres(_))
    }
}

impl fmt::Display for ChaosHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres(number) => write!(f, "postgres-{}", number + 1),
            Self::Api(number) => write!(f, "api-{}", number + 1),
            Self::Scheduler(number) => write!(f, "scheduler-{}", number + 1),
            Self::Node(number) => write!(f, "node-{}", number + 1),
        }
    }
}

/// A process; a number selects among those that run when the fault begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Victim {
    Daemon(ChaosHost),
    /// The leading scheduler at that time.
    Leader,
    Shim(u32),
    Task(u32),
    /// Server process of Postgres.
    Backend(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChaosFault {
    /// SIGKILL.
    Kill(Victim),
    /// SIGSTOP, then SIGCONT.
    Stop(Victim),
    /// SIGKILL of executor, shims and tasks of a node.
    KillNode(usize),
    /// SIGSTOP of all of them, as when a virtual machine is paused.
    StopNode(usize),
    /// Drops all packets between the two.
    Cut(ChaosHost, ChaosHost),
    /// Drops all packets of the host.
    Isolate(ChaosHost),
    FillDisk(ChaosHost),
    /// Writes wait until the end of the fault.
    StallDisk(ChaosHost),
    /// Writes wait most of the time.
    SlowDisk(ChaosHost),
    /// Steps the wall clock of one daemon, and steps it back.
    StepClock {
        host: ChaosHost,
        by_s: i64,
    },
    /// SIGINT to the leading postmaster: its sessions end, then it is restarted.
    RestartPostgres,
    /// SIGQUIT to it: no checkpoint, so the next start recovers.
    CrashPostgres,
    /// SIGKILL to it. The standby, to which commits were synchronous, is promoted and takes the
    /// address.
    FailOver,
}

impl ChaosFault {
    /// Name of the kind, for counts.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Kill(_) => "kill",
            Self::Stop(_) => "stop",
            Self::KillNode(_) => "kill-node",
            Self::StopNode(_) => "stop-node",
            Self::Cut(..) => "cut",
            Self::Isolate(_) => "isolate",
            Self::FillDisk(_) => "fill-disk",
            Self::StallDisk(_) => "stall-disk",
            Self::SlowDisk(_) => "slow-disk",
            Self::StepClock { .. } => "step-clock",
            Self::RestartPostgres => "restart-postgres",
            Self::CrashPostgres => "crash-postgres",
            Self::FailOver => "fail-over",
        }
    }

    /// Whether it can make a task fail, which is charged to its job's retries.
    pub fn reaches_tasks(self) -> bool {
        match self {
            Self::Kill(victim) | Self::Stop(victim) => {
                matches!(
                    victim,
                    Victim::Shim(_) | Victim::Task(_) | Victim::Daemon(ChaosHost::Node(_))
                )
            }
            Self::KillNode(_) | Self::StopNode(_) => true,
            Self::Cut(a, b) => [a, b].iter().all(|host| matches!(host, ChaosHost::Node(_))),
            Self::Isolate(host)
            | Self::FillDisk(host)
            | Self::StallDisk(host)
            | Self::SlowDisk(host) => matches!(host, ChaosHost::Node(_)),
            Self::StepClock { .. }
            | Self::RestartPostgres
            | Self::CrashPostgres
            | Self::FailOver => false,
        }
    }

    fn lasts(self) -> bool {
        !matches!(
            self,
            Self::Kill(_) | Self::KillNode(_) | Self::RestartPostgres | Self::CrashPostgres
        )
    }

    /// Whether it affects the servers of Postgres, their disks or their links, which a failover
    /// needs.
    fn touches_the_database(self) -> bool {
        match self {
            Self::Kill(victim) | Self::Stop(victim) => match victim {
                Victim::Daemon(host) => host.is_database(),
                Victim::Backend(_) => true,
                Victim::Leader | Victim::Shim(_) | Victim::Task(_) => false,
            },
            Self::Cut(one, other) => one.is_database() || other.is_database(),
            Self::Isolate(host)
            | Self::FillDisk(host)
            | Self::StallDisk(host)
            | Self::SlowDisk(host)
            | Self::StepClock { host, .. } => host.is_database(),
            Self::RestartPostgres | Self::CrashPostgres | Self::FailOver => true,
            Self::KillNode(_) | Self::StopNode(_) => false,
        }
    }

    /// Whether both faults affect one place: simultaneous ones would heal each other.
    fn shares_its_place(self, other: Self) -> bool {
        (self == Self::FailOver && other.touches_the_database())
            || (other == Self::FailOver && self.touches_the_database())
            || is_same(self.disk(), other.disk())
            || is_same(self.clock(), other.clock())
            || is_same(self.links(), other.links())
    }

    /// Host whose disk is affected.
    fn disk(self) -> Option<ChaosHost> {
        match self {
            Self::FillDisk(host) | Self::StallDisk(host) | Self::SlowDisk(host) => Some(host),
            _ => None,
        }
    }

    /// Host whose clock is affected.
    fn clock(self) -> Option<ChaosHost> {
        match self {
            Self::StepClock { host, .. } => Some(host),
            _ => None,
        }
    }

    /// Hosts whose links are affected, in order; one host twice means all of its links.
    fn links(self) -> Option<(ChaosHost, ChaosHost)> {
        match self {
            Self::Cut(a, b) => Some((a.min(b), a.max(b))),
            Self::Isolate(host) => Some((host, host)),
            _ => None,
        }
    }
}

/// Whether both places are there and equal.
fn is_same<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.is_some() && one == other
}

/// Fault that begins `at_ms` after the start and is healed `for_ms` later; 0 if there is nothing to
/// heal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScheduledFault {
    pub at_ms: u64,
    pub for_ms: u64,
    pub fault: ChaosFault,
}

impl fmt::Display for ScheduledFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (s, ms) = (self.at_ms / 1_000, self.at_ms % 1_000);
        write!(f, "{s}.{ms:03} s")?;
        if self.for_ms > 0 {
            write!(f, " for {} ms", self.for_ms)?;
        }
        write!(f, ": {:?}", self.fault)
    }
}

/// Whether the cluster must be quiet at that time.
pub fn is_quiet(at_ms: u64) -> bool {
    at_ms % PERIOD_MS >= PERIOD_MS - QUIET_MS
}

/// Faults of `minutes` minutes, ordered by their start.
pub fn schedule(seed: u64, minutes: u64) -> Vec<ScheduledFault> {
    let mut dice = FaultRandom(seed);
    let end_ms = minutes * 60_000;
    let mut planned: Vec<ScheduledFault> = Vec::new();
    let mut at_ms = 0;
    loop {
        at_ms += dice.between(SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS);
        if at_ms >= end_ms {
            return planned;
        }
        let fault = draw(&mut dice);
        let mut drawn_ms = dice.between(SHORTEST_FAULT_MS, LONGEST_FAULT_MS);
        if fault == ChaosFault::FailOver {
            drawn_ms = LONGEST_FAULT_MS;
        }
        if is_quiet(at_ms) {
            continue;
        }
        // It is healed at the start of the quiet time.
        let until_quiet_ms = PERIOD_MS - QUIET_MS - at_ms % PERIOD_MS;
        let for_ms = if fault.lasts() {
            drawn_ms.min(until_quiet_ms).min(end_ms - at_ms)
        } else {
            0
        };
        let is_taken = planned.iter().any(|other| {
            other.at_ms + other.for_ms + SHORTEST_PAUSE_MS > at_ms
                && other.fault.shares_its_place(fault)
        });
        if !is_taken {
            planned.push(ScheduledFault {
                at_ms,
                for_ms,
                fault,
            });
        }
    }
}

fn draw(dice: &mut FaultRandom) -> ChaosFault {
    match dice.below(100) {
        0..26 => ChaosFault::Kill(victim(dice)),
        26..30 => ChaosFault::KillNode(dice.index(NODES)),
        30..52 => ChaosFault::Stop(victim(dice)),
        52..56 => ChaosFault::StopNode(dice.index(NODES)),
        56..68 => {
            let hosts = ChaosHost::all();
            let first = dice.index(hosts.len());
            let second = (first + 1 + dice.index(hosts.len() - 1)) % hosts.len();
            ChaosFault::Cut(hosts[first], hosts[second])
        }
        68..72 => ChaosFault::Isolate(ChaosHost::all()[dice.index(ChaosHost::all().len())]),
        72..77 => ChaosFault::FillDisk(disk(dice)),
        77..80 => ChaosFault::StallDisk(disk(dice)),
        80..84 => ChaosFault::SlowDisk(disk(dice)),
        84..93 => {
            let size_s = dice.between(30, 600).cast_signed();
            let by_s = if dice.below(2) == 0 { size_s } else { -size_s };
            let host = ChaosHost::all()[dice.index(ChaosHost::all().len())];
            ChaosFault::StepClock { host, by_s }
        }
        93..95 => ChaosFault::RestartPostgres,
        95..97 => ChaosFault::CrashPostgres,
        _ => ChaosFault::FailOver,
    }
}

fn victim(dice: &mut FaultRandom) -> Victim {
    let pick = u32::try_from(dice.below(1_000)).expect("small");
    match dice.below(12) {
        0..2 => Victim::Leader,
        2..5 => Victim::Daemon(ChaosHost::all()[dice.index(ChaosHost::all().len())]),
        5..7 => Victim::Shim(pick),
        7..10 => Victim::Task(pick),
        _ => Victim::Backend(pick),
    }
}

fn disk(dice: &mut FaultRandom) -> ChaosHost {
    ChaosHost::with_disks()[dice.index(ChaosHost::with_disks().len())]
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct FaultRandom(pub u64);

impl FaultRandom {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// Both bounds included.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("an index")
    }
}

#[test]
fn schedule_is_a_function_of_its_seed() {
    assert_eq!(schedule(7, 30), schedule(7, 30));
    assert_ne!(schedule(7, 30), schedule(8, 30));
    let (short, long) = (schedule(7, 3), schedule(7, 30));
    let same = short.iter().zip(&long).filter(|(a, b)| a.at_ms == b.at_ms);
    assert_eq!(
        same.count(),
        short.len(),
        "a longer run begins as a shorter"
    );
}

#[test]
fn schedule_has_every_kind_within_its_bounds() {
    let planned = schedule(1, 30);
    let kinds: std::collections::BTreeSet<_> = planned.iter().map(|one| one.fault.kind()).collect();
    assert_eq!(kinds.len(), 13, "{kinds:?}");
    for one in &planned {
        let end_ms = one.at_ms + one.for_ms;
        assert!(
            !is_quiet(one.at_ms) && one.for_ms <= LONGEST_FAULT_MS,
            "{one}"
        );
        assert!(
            end_ms % PERIOD_MS <= PERIOD_MS - QUIET_MS,
            "{one} ends late"
        );
        if let ChaosFault::StepClock { by_s, .. } = one.fault {
            assert!((30..=600).contains(&by_s.abs()), "{one}");
        }
    }
    assert!(planned.is_sorted_by_key(|one| one.at_ms));
    assert!(planned.len() > 100, "{}", planned.len());
}

#[test]
fn faults_of_one_place_do_not_overlap() {
    for seed in 0..50 {
        let planned = schedule(seed, 30);
        for (index, one) in planned.iter().enumerate() {
            for other in &planned[index + 1..] {
                let overlap = other.at_ms < one.at_ms + one.for_ms;
                assert!(
                    !(overlap && one.fault.shares_its_place(other.fault)),
                    "seed {seed}: {one} and {other}"
                );
            }
        }
    }
}
