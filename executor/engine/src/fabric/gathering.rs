//! The rule by which reports become the next view; whoever coordinates (rank 0, the executor, a test) calls it under its lock.

use super::view::{Member, Report, View};
use std::collections::{BTreeMap, BTreeSet};

/// Members of the present view, and who has reported since.
#[derive(Debug)]
pub struct Gathering {
    view: View,
    reports: BTreeMap<u32, Report>,
    /// Newcomers that the first view waits for.
    first: usize,
}

impl Gathering {
    /// The first view forms when `first` newcomers have reported.
    #[must_use]
    pub fn new(first: usize) -> Self {
        let members = Vec::new();
        Self {
            view: View { number: 0, members },
            reports: BTreeMap::new(),
            first,
        }
    }

    /// The present view; number 0 and empty before the first.
    #[must_use]
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Whether a newcomer has reported that is in no view yet.
    #[must_use]
    pub fn someone_waits(&self) -> bool {
        self.newcomers().next().is_some()
    }

    /// Takes a member's report.
    ///
    /// # Errors
    /// Why it gets no view: the others have gone on without it.
    pub fn report(&mut self, report: Report) -> Result<(), String> {
        let id = report.member.id;
        let is_member = self.view.rank_of(id).is_some();
        if report.member.completed.is_some() && !is_member {
            return Err(format!("view {} goes on without it", self.view.number));
        }
        self.reports.insert(id, report);
        Ok(())
    }

    /// Forms the next view once everyone has reported that is not held for dead. Whoever reports is alive, whatever others say.
    pub fn next_view(&mut self) -> Option<&View> {
        let lost: BTreeSet<u32> = self
            .reports
            .values()
            .flat_map(|report| report.lost.iter().copied())
            .filter(|id| !self.reports.contains_key(id))
            .collect();
        let awaited = |member: &&Member| !lost.contains(&member.id);
        let old = &self.view.members;
        let complete = old
            .iter()
            .filter(awaited)
            .all(|member| self.reports.contains_key(&member.id));
        let survivors: Vec<&Report> = old
            .iter()
            .filter_map(|member| self.reports.get(&member.id))
            .collect();
        let top = survivors.iter().map(|report| report.member.completed).max();
        // A newcomer has nothing to repeat a step with.
        let open = match top {
            Some(top) => survivors
                .iter()
                .filter(|report| report.member.completed == top)
                .all(|report| report.between_steps),
            None => self.newcomers().count() >= self.first,
        };
        if !complete || (survivors.is_empty() && !open) {
            return None;
        }
        let mut members: Vec<Member> = survivors
            .iter()
            .map(|report| report.member.clone())
            .collect();
        if open {
            members.extend(self.newcomers().map(|report| report.member.clone()));
        }
        for member in &members {
            self.reports.remove(&member.id);
        }
        self.view = View {
            number: self.view.number + 1,
            members,
        };
        Some(&self.view)
    }

    fn newcomers(&self) -> impl Iterator<Item = &Report> {
        self.reports
            .values()
            .filter(|report| self.view.rank_of(report.member.id).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(id: u32, completed: Option<u64>, lost: &[u32], between_steps: bool) -> Report {
        Report {
            member: Member {
                id,
                attempt: 1,
                node: String::new(),
                address: ([127, 0, 0, 1], 1).into(),
                local: None,
                completed,
            },
            view: 1,
            lost: lost.to_vec(),
            between_steps,
        }
    }

    fn ids(view: Option<&View>) -> Option<Vec<u32>> {
        view.map(|view| view.members.iter().map(|member| member.id).collect())
    }

    /// A gathering in its first view, of members 0, 1 and 2.
    fn three() -> Gathering {
        let mut gathering = Gathering::new(3);
        for id in [2, 0, 1] {
            assert_eq!(ids(gathering.next_view()), None);
            gathering.report(report(id, None, &[], true)).unwrap();
        }
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1, 2]));
        gathering
    }

    #[test]
    fn survivors_wait_for_each_other_and_not_for_the_dead() {
        let mut gathering = three();
        gathering.report(report(0, Some(4), &[1], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), None, "2 has not reported");
        gathering.report(report(2, Some(4), &[], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 2]));
        assert!(gathering.report(report(1, Some(4), &[], false)).is_err());
    }

    #[test]
    fn whoever_reports_is_alive() {
        let mut gathering = three();
        gathering.report(report(0, Some(4), &[1], false)).unwrap();
        gathering.report(report(1, Some(4), &[2], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1]));
    }

    #[test]
    fn a_newcomer_waits_for_the_end_of_a_step() {
        let mut gathering = three();
        gathering.report(report(7, None, &[], true)).unwrap();
        assert!(gathering.someone_waits());
        for id in 0..3 {
            gathering.report(report(id, Some(4), &[], false)).unwrap();
        }
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1, 2]));
        assert!(gathering.someone_waits());
        // One has finished the step that the others are about to be given the result of.
        gathering.report(report(0, Some(5), &[], true)).unwrap();
        gathering.report(report(1, Some(4), &[], false)).unwrap();
        gathering.report(report(2, Some(4), &[], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1, 2, 7]));
        assert!(!gathering.someone_waits());
    }
}
