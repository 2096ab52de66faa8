//! Residuals of encoded gradients: transfer to the coordinator for a checkpoint, and back after a
//! start from one.

use super::AllReduce;
use super::membership_role::MembershipRole;
use muster_comm::fabric::FabricError;
use std::slice;

impl AllReduce<'_> {
    /// Sends all workers' residuals to the coordinator, between two steps. All workers have agreed
    /// on it and are in the view that completed the last step. After a death the checkpoint lacks
    /// the residuals that had not arrived.
    pub(super) fn gather(&mut self) -> Result<(), FabricError> {
        let Some(coded) = &self.coded else {
            return Ok(());
        };
        let own = coded.residual();
        let (rank, size) = (self.group.rank(), self.group.view().members.len());
        if let MembershipRole::Member(_) = self.role {
            let mut own = own;
            return self.group.carry((rank, 0), &mut own).map(drop);
        }
        let mut kept = coded.keeps();
        kept.add(0, &own);
        let mut theirs = own;
        let mut is_whole = true;
        for from in 1..size {
            is_whole = is_whole && self.group.carry((from, 0), &mut theirs)?;
            if is_whole {
                kept.add(from, &theirs)
            } else {
                kept.add_nothing(from)
            }
        }
        self.residual = kept.into_extras();
        Ok(())
    }

    /// Sends the first workers of a job that continues from a checkpoint their residuals, in the
    /// view in which they were welcomed.
    pub(super) fn deal(&mut self) -> Result<(), FabricError> {
        let Some(coded) = &mut self.coded else {
            return Ok(());
        };
        let (rank, size) = (self.group.rank(), self.group.view().members.len());
        let whole = 0..self.replica.len();
        let buckets = match size {
            1 => slice::from_ref(&whole),
            _ => &self.buckets,
        };
        let mut own = coded.residual();
        match self.dealt.take() {
            Some(dealt) => {
                for (to, mut values) in (0..size).zip(dealt) {
                    if to == rank {
                        own = values;
                    } else if !self.group.carry((rank, to), &mut values)? {
                        break;
                    }
                }
            }
            None if self.group.carry((0, rank), &mut own)? => {}
            None => return Ok(()),
        }
        coded.begin_with(&own, (rank, size), buckets);
        Ok(())
    }
}
