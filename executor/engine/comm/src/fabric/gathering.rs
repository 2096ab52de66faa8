//! Rule that turns reports of members into the next view. The coordinator of the views (rank 0, the
//! executor or a test) calls it under its lock.

use super::view::{GroupView, MemberReport, ViewMember};
use muster_model::id::TaskId;
use std::collections::{BTreeMap, BTreeSet};

/// Members of the present view and their reports since it began.
#[derive(Debug)]
pub struct Gathering {
    view: GroupView,
    reports: BTreeMap<TaskId, MemberReport>,
    /// Number of new members for which the first view waits.
    first: usize,
    /// Members from the next open view on, in order of rank; if `None`, all tasks that report.
    roster: Option<Vec<TaskId>>,
    /// Tasks that were lost, have left, or were dismissed.
    gone: BTreeSet<TaskId>,
}

impl Gathering {
    /// Creates a gathering without a roster. The first view forms when `first` new members have
    /// reported; later views admit all tasks that report.
    #[must_use]
    pub fn new(first: usize) -> Self {
        let members = Vec::new();
        Self {
            view: GroupView { number: 0, members },
            reports: BTreeMap::new(),
            first,
            roster: None,
            gone: BTreeSet::new(),
        }
    }

    /// Creates a gathering with a roster. The first view forms when all of its members have
    /// reported, in its order.
    #[must_use]
    pub fn of(roster: Vec<TaskId>) -> Self {
        let mut gathering = Self::new(0);
        gathering.roster = Some(roster);
        gathering
    }

    /// Sets the members from the next open view on, in the order of their ranks.
    pub fn want(&mut self, roster: Vec<TaskId>) {
        self.roster = Some(roster);
    }

    /// Records that this task was lost or has left; views no longer wait for it.
    pub fn forget(&mut self, id: TaskId) {
        self.reports.remove(&id);
        self.gone.insert(id);
    }

    /// Whether that task was lost, has left, or was dismissed.
    #[must_use]
    pub fn has_gone(&self, id: TaskId) -> bool {
        self.gone.contains(&id)
    }

    /// The present view; number 0 and empty before the first view.
    #[must_use]
    pub fn view(&self) -> &GroupView {
        &self.view
    }

    /// Whether an open view would have other members than the present one, and all of them have
    /// reported. The present members do not stop for a new member that has not reported yet.
    #[must_use]
    pub fn someone_waits(&self) -> bool {
        let Some(roster) = &self.roster else {
            return self.newcomers().next().is_some();
        };
        let mut new = roster
            .iter()
            .filter(|id| !self.gone.contains(id) && self.view.rank_of(**id).is_none());
        let joins = new.clone().next().is_some();
        let there = new.all(|id| self.reports.contains_key(id));
        let leaves = self
            .view
            .members
            .iter()
            .any(|member| !self.gone.contains(&member.id) && !roster.contains(&member.id));
        there && (joins || leaves)
    }

    /// Records a member's report.
    ///
    /// # Errors
    /// The reason why the task is not in the next view: the other members have continued without
    /// it.
    pub fn report(&mut self, report: MemberReport) -> Result<(), String> {
        let id = report.member.id;
        let is_member = self.view.rank_of(id).is_some();
        let has_begun = self.view.number > 0;
        if (has_begun && report.member.completed.is_some() && !is_member) || self.has_gone(id) {
            return Err(format!("view {} continues without it", self.view.number));
        }
        self.reports.insert(id, report);
        Ok(())
    }

    /// Forms the next view once all members have reported that are not considered lost. A member
    /// that reports is alive, even if others have reported it lost.
    pub fn next_view(&mut self) -> Option<&GroupView> {
        let held: BTreeSet<TaskId> = self
            .reports
            .values()
            .flat_map(|report| report.lost.iter().copied())
            .chain(self.gone.iter().copied())
            .filter(|id| !self.reports.contains_key(id))
            .collect();
        let old = &self.view.members;
        let complete = old
            .iter()
            .filter(|member| !held.contains(&member.id))
            .all(|member| self.reports.contains_key(&member.id));
        let survivors: Vec<&MemberReport> = old
            .iter()
            .filter_map(|member| self.reports.get(&member.id))
            .collect();
        let open = self.is_open(&survivors);
        if !complete || (survivors.is_empty() && !open) {
            return None;
        }
        // A new member has no data to repeat a step with. A new member that is not on this roster
        // may be on the next one.
        let newcomers = self.newcomers().filter(|report| {
            let roster = self.roster.as_ref();
            open && roster.is_none_or(|roster| roster.contains(&report.member.id))
        });
        let mut members: Vec<ViewMember> = survivors
            .into_iter()
            .chain(newcomers)
            .map(|report| report.member.clone())
            .collect();
        if let (true, Some(roster)) = (open, &self.roster) {
            let place = |member: &ViewMember| roster.iter().position(|wanted| *wanted == member.id);
            let dismissed = members.extract_if(.., |member| place(member).is_none());
            self.gone.extend(dismissed.map(|member| member.id));
            members.sort_by_key(place);
        }
        self.gone.extend(held);
        self.reports
            .retain(|id, _| !self.gone.contains(id) && !members.iter().any(|m| m.id == *id));
        self.view = GroupView {
            number: self.view.number + 1,
            members,
        };
        Some(&self.view)
    }

    /// Whether the next view may have other members than the survivors of the present one.
    fn is_open(&self, survivors: &[&MemberReport]) -> bool {
        match survivors.iter().map(|report| report.member.completed).max() {
            Some(top) => survivors
                .iter()
                .filter(|report| report.member.completed == top)
                .all(|report| report.between_steps),
            None => match &self.roster {
                None => self.newcomers().count() >= self.first,
                Some(roster) => {
                    let mut living = roster.iter().filter(|id| !self.gone.contains(id));
                    let some = living.clone().next().is_some();
                    some && living.all(|id| self.reports.contains_key(id))
                }
            },
        }
    }

    fn newcomers(&self) -> impl Iterator<Item = &MemberReport> {
        self.reports
            .values()
            .filter(|report| self.view.rank_of(report.member.id).is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn task(number: u32) -> TaskId {
        TaskId(Uuid::from_u128(number.into()))
    }

    fn tasks(numbers: &[u32]) -> Vec<TaskId> {
        numbers.iter().map(|&number| task(number)).collect()
    }

    fn report(id: u32, completed: Option<u64>, lost: &[u32], between_steps: bool) -> MemberReport {
        MemberReport {
            member: ViewMember {
                id: task(id),
                attempt: 1,
                node: String::new(),
                address: ([127, 0, 0, 1], 1).into(),
                local: None,
                completed,
                summing: None,
            },
            view: 1,
            lost: tasks(lost),
            between_steps,
        }
    }

    fn ids(view: Option<&GroupView>) -> Option<Vec<u32>> {
        view.map(|view| {
            view.members
                .iter()
                .map(|member| member.id.0.as_u128() as u32)
                .collect()
        })
    }

    /// A gathering in its first view, with members 0, 1 and 2.
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
    fn next_view_waits_for_all_survivors_only() {
        let mut gathering = three();
        gathering.report(report(0, Some(4), &[1], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), None, "2 has not reported");
        gathering.report(report(2, Some(4), &[], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 2]));
        assert!(gathering.report(report(1, Some(4), &[], false)).is_err());
    }

    #[test]
    fn member_that_reports_is_not_lost() {
        let mut gathering = three();
        gathering.report(report(0, Some(4), &[1], false)).unwrap();
        gathering.report(report(1, Some(4), &[2], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1]));
    }

    #[test]
    fn new_member_joins_only_between_steps() {
        let mut gathering = three();
        gathering.report(report(7, None, &[], true)).unwrap();
        assert!(gathering.someone_waits());
        for id in 0..3 {
            gathering.report(report(id, Some(4), &[], false)).unwrap();
        }
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1, 2]));
        assert!(gathering.someone_waits());
        // Rank 0 has completed the step; the others are about to receive its result.
        gathering.report(report(0, Some(5), &[], true)).unwrap();
        gathering.report(report(1, Some(4), &[], false)).unwrap();
        gathering.report(report(2, Some(4), &[], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![0, 1, 2, 7]));
        assert!(!gathering.someone_waits());
    }

    /// A gathering in its first view, with a roster.
    fn rostered() -> Gathering {
        let mut gathering = Gathering::of(tasks(&[5, 3, 4]));
        // First the member that has the parameters, then the others.
        gathering.report(report(5, Some(0), &[], true)).unwrap();
        for id in [4, 8] {
            gathering.report(report(id, None, &[], true)).unwrap();
            assert_eq!(ids(gathering.next_view()), None, "3 has not come");
        }
        gathering.report(report(3, None, &[], true)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![5, 3, 4]));
        assert!(!gathering.has_gone(task(8)), "the next roster may have it");
        gathering
    }

    #[test]
    fn roster_decides_on_members_and_their_order() {
        let mut gathering = rostered();
        assert!(!gathering.someone_waits());
        gathering.want(tasks(&[5, 9, 4]));
        assert!(!gathering.someone_waits(), "9 has not come");
        gathering.report(report(9, None, &[], true)).unwrap();
        assert!(gathering.someone_waits());
        for id in [3, 4, 5] {
            assert_eq!(ids(gathering.next_view()), None);
            gathering.report(report(id, Some(7), &[], true)).unwrap();
        }
        assert_eq!(ids(gathering.next_view()), Some(vec![5, 9, 4]));
        assert!(gathering.has_gone(task(3)), "dismissed");
        assert!(gathering.report(report(3, Some(7), &[], true)).is_err());
        assert!(!gathering.someone_waits());
    }

    #[test]
    fn lost_members_are_not_waited_for() {
        let mut gathering = rostered();
        gathering.forget(task(4));
        assert!(
            !gathering.someone_waits(),
            "its place on the roster is void"
        );
        gathering.report(report(5, Some(2), &[], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), None);
        gathering.report(report(3, Some(2), &[], false)).unwrap();
        assert_eq!(ids(gathering.next_view()), Some(vec![5, 3]));
    }
}
