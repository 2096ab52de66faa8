//! `muster replay`: plans stored rounds again on this machine, with the code of the scheduler.
//!
//! Without `--policy` each round must give the same bytes; the exit code reports a difference. For
//! administrators, because a round contains the jobs of all tenants.

use super::{CliSession, UsageError};
use crate::clock;
use crate::output::table;
use clap::Args;
use muster_model::view::RoundSummaryView;
use muster_sim::core::policies::name::{PolicyName, UnknownPolicy};
use muster_sim::core::policy::Policy;
use muster_sim::replay::{Difference, Replay as Replayed, StoredRound, replay};
use std::str::FromStr;
use std::time::Duration;

#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Number of a round, or a range such as 120..160 [default: the newest].
    #[arg(conflicts_with = "since")]
    rounds: Option<RoundRange>,
    /// All rounds of the last time, such as 90s, 30m, 12h or 7d.
    #[arg(long, value_name = "AGE", value_parser = age)]
    since: Option<Duration>,
    /// Show the decisions of this policy on the same snapshots.
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

/// Inclusive range of rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RoundRange {
    from: u64,
    to: u64,
}

/// Rounds that gave other bytes under their own policy: a scheduler of another version has written
/// them.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct OtherBytes(String);

impl ReplayArgs {
    /// # Errors
    /// If a round does not exist, the server refuses, or rounds gave other bytes.
    pub async fn run(self, session: &CliSession) -> anyhow::Result<()> {
        let policy = self.policy.as_deref().map(named).transpose()?;
        let rounds = self.choose(session).await?;
        let mut replays = Vec::new();
        for number in rounds {
            let round = session.client.round(number).await?;
            let recorded = StoredRound {
                number,
                policy: round.policy.as_ref().map(|policy| policy.get()),
                snapshot: round.snapshot.get(),
                plan: round.plan.get(),
                report: round.report.get(),
            };
            replays.push(replay(recorded, policy.as_ref())?);
        }
        session.output.print(&replays, |replays| {
            describe(replays, self.policy.as_deref())
        })?;
        let changed = replays.iter().filter(|replay| !replay.is_same()).count();
        if policy.is_none() && changed > 0 {
            let all = replays.len();
            return Err(OtherBytes(format!("{changed} of {all} rounds gave other bytes")).into());
        }
        Ok(())
    }

    /// Returns the numbers of the selected stored rounds, oldest first.
    async fn choose(&self, session: &CliSession) -> anyhow::Result<Vec<u64>> {
        if let Some(RoundRange { from, to }) = self.rounds
            && from == to
        {
            return Ok(vec![from]);
        }
        let since = self.since.map(|age| clock::now() - age);
        let (least, mut before) = match self.rounds {
            Some(RoundRange { from, to }) => (from, to.checked_add(1)),
            None => (0, None),
        };
        let mut numbers = Vec::new();
        loop {
            let page = session.client.rounds(before, since).await?;
            let kept = page
                .items
                .iter()
                .map(|round: &RoundSummaryView| round.number);
            numbers.extend(kept.filter(|number| *number >= least));
            if self.rounds.is_none() && self.since.is_none() {
                numbers.truncate(1);
                break;
            }
            before = page.next.and_then(|next| next.parse().ok());
            if before.is_none_or(|before| before <= least) {
                break;
            }
        }
        if numbers.is_empty() {
            return Err(super::NotFound("no such round is kept".to_owned()).into());
        }
        numbers.reverse();
        Ok(numbers)
    }
}

fn named(name: &str) -> Result<Policy, UsageError> {
    let share: PolicyName = name
        .parse()
        .map_err(|unknown: UnknownPolicy| UsageError(format!("--policy: {unknown}")))?;
    Ok(Policy::named(share))
}

fn describe(replays: &[Replayed], policy: Option<&str>) -> String {
    let Some(policy) = policy else {
        let lines = replays.iter().map(|replay| {
            let verdict = if replay.is_same() {
                "the same bytes".to_owned()
            } else {
                let what = match (replay.same_plan, replay.same_report) {
                    (false, true) => "plan",
                    (true, false) => "report",
                    _ => "plan and report",
                };
                format!("ANOTHER {what}")
            };
            format!("round {}: {verdict}", replay.round)
        });
        let mut text = lines.collect::<Vec<_>>().join("\n");
        text.push_str(&tail(replays, "replayed"));
        return text;
    };
    let differing = replays
        .iter()
        .filter(|replay| !replay.differences.is_empty())
        .count();
    let held = |replay: fn(&Replayed) -> u32| -> f64 {
        let sum: f64 = replays.iter().map(|one| f64::from(replay(one))).sum();
        sum / replays.len().max(1) as f64
    };
    let summary = table(
        ["", "as it was", policy],
        [
            row(
                "GPUs held, mean",
                held(|one| one.recorded.held_gpus),
                held(|one| one.replayed.held_gpus),
            ),
            row(
                "jobs waiting, mean",
                held(|one| one.recorded.waiting_jobs),
                held(|one| one.replayed.waiting_jobs),
            ),
        ],
    );
    let rounds = replays.len();
    format!(
        "{differing} of {rounds} rounds would have been decided otherwise\n{summary}{}",
        tail(replays, policy)
    )
}

fn row(what: &str, recorded: f64, replayed: f64) -> [String; 3] {
    [
        what.to_owned(),
        format!("{recorded:.1}"),
        format!("{replayed:.1}"),
    ]
}

/// Returns the jobs with other decisions, if any.
fn tail(replays: &[Replayed], column: &str) -> String {
    let shown = |text: &String| {
        if text.is_empty() {
            "leave it".to_owned()
        } else {
            text.clone()
        }
    };
    let rows: Vec<[String; 4]> = replays
        .iter()
        .flat_map(|replay| {
            replay.differences.iter().map(|difference: &Difference| {
                [
                    replay.round.to_string(),
                    difference.name.clone(),
                    shown(&difference.recorded),
                    shown(&difference.replayed),
                ]
            })
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    format!("\n\n{}", table(["round", "job", "as it was", column], rows))
}

impl FromStr for RoundRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is neither a round such as 17 nor a span such as 17..40");
        let number = |text: &str| text.trim_start_matches('=').parse::<u64>().ok();
        let (from, to) = text.split_once("..").unwrap_or((text, text));
        match (number(from), number(to)) {
            (Some(from), Some(to)) if from <= to => Ok(Self { from, to }),
            _ => Err(wrong()),
        }
    }
}

pub(super) fn age(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no age; expected such as 90s, 30m, 12h or 7d");
    let (digits, unit) = text
        .split_at_checked(text.len().saturating_sub(1))
        .ok_or_else(wrong)?;
    let unit_s = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(wrong()),
    };
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let seconds = number
        .checked_mul(unit_s)
        .filter(|&s| s <= 10 * 365 * 86_400);
    seconds.map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::{RoundRange, age};
    use std::time::Duration;

    #[test]
    fn round_ranges_and_ages_are_parsed_or_refused() {
        assert_eq!("7".parse(), Ok(RoundRange { from: 7, to: 7 }));
        assert_eq!("7..9".parse(), Ok(RoundRange { from: 7, to: 9 }));
        for wrong in ["9..7", "", "a", "1..", "..2"] {
            assert!(wrong.parse::<RoundRange>().is_err(), "{wrong}");
        }
        assert_eq!(age("90m"), Ok(Duration::from_secs(5_400)));
        for wrong in ["", "m", "5", "5y", "99999999999999d", "é"] {
            assert!(age(wrong).is_err(), "{wrong}");
        }
    }
}
