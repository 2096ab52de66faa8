//! Offer before a communicator is formed, as a sum of floats. It contains the coordinator's NCCL
//! id, to which the others add zeros, and shows whether all workers hold the same parameters.

use muster_compute::cuda::{ID_BYTES, NcclId};

/// Bits of a fingerprint.
const BITS: usize = 64;

/// Number of floats: whether there is an id, its bytes, and the count of each bit of the
/// fingerprint.
pub const OFFER: usize = 1 + ID_BYTES + BITS;

/// Offer of one worker, or the result of all.
#[derive(Clone, Copy)]
pub struct NcclOffer {
    /// NCCL id of the coordinator, if it could make one.
    pub id: Option<NcclId>,
    /// Hash of all that must have the same bits on every worker.
    pub fingerprint: u64,
}

impl NcclOffer {
    pub fn write(&self, out: &mut [f32]) {
        out[..OFFER].fill(0.0);
        if let Some(NcclId(bytes)) = self.id {
            out[0] = 1.0;
            for (out, byte) in out[1..].iter_mut().zip(bytes) {
                *out = f32::from(byte);
            }
        }
        for (bit, out) in out[1 + ID_BYTES..OFFER].iter_mut().enumerate() {
            *out = f32::from(u8::from(self.fingerprint >> bit & 1 == 1));
        }
    }

    /// Reads the sum over `workers` workers; `None` if they hold different bits. All read the same
    /// sum.
    pub fn read(sums: &[f32], workers: usize) -> Option<Self> {
        let mut fingerprint = 0;
        for (bit, sum) in sums[1 + ID_BYTES..OFFER].iter().enumerate() {
            match *sum {
                0.0 => {}
                sum if sum == workers as f32 => fingerprint |= 1 << bit,
                _ => return None,
            }
        }
        let id = (sums[0] == 1.0).then(|| NcclId(std::array::from_fn(|at| sums[1 + at] as u8)));
        Some(Self { id, fingerprint })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(offers: &[NcclOffer]) -> Vec<f32> {
        let mut sums = vec![0.0; OFFER];
        for offer in offers {
            let mut floats = vec![f32::NAN; OFFER];
            offer.write(&mut floats);
            sums.iter_mut().zip(floats).for_each(|(sum, x)| *sum += x);
        }
        sums
    }

    #[test]
    fn offer_carries_id_and_reveals_other_parameters() {
        let chief = NcclOffer {
            id: Some(NcclId(std::array::from_fn(|at| at as u8 + 100))),
            fingerprint: 0xfeed_0000_1234_5678,
        };
        let other = NcclOffer { id: None, ..chief };
        let read = NcclOffer::read(&sum(&[chief, other, other]), 3).expect("the same parameters");
        assert_eq!(read.fingerprint, chief.fingerprint);
        assert_eq!(read.id.unwrap().0, chief.id.unwrap().0);
        assert!(
            NcclOffer::read(&sum(&[other, other]), 2)
                .unwrap()
                .id
                .is_none()
        );
        let astray = NcclOffer {
            fingerprint: chief.fingerprint ^ 1 << 63,
            ..other
        };
        assert!(NcclOffer::read(&sum(&[chief, other, astray]), 3).is_none());
    }
}
