//! Tests of the calls to NCCL against the stand-in, and of the symbols against the real library.

use crate::cuda::emulator::StandInBehaviour;
use crate::cuda::nccl::{AllReduceError, ID_BYTES, Nccl, NcclCommunicator};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Stream of the stand-in.
#[derive(Default)]
struct StandInStream(Box<AtomicU64>);

impl StandInStream {
    fn sum(&self, ranks: &mut NcclCommunicator, numbers: &mut [f32]) {
        let at = numbers.as_mut_ptr() as u64;
        let stream = std::ptr::from_ref(&*self.0).cast_mut().cast();
        // SAFETY: the numbers are not used before the stream is done.
        unsafe { ranks.sum(at, numbers.len(), stream, &mut || true) };
    }

    fn is_done(&self) -> bool {
        self.0.load(Ordering::SeqCst) == 0
    }
}

fn formed(nccl: &Arc<Nccl>, ranks: usize) -> Vec<NcclCommunicator> {
    let id = nccl.id().unwrap();
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..ranks)
            .map(|rank| {
                scope.spawn(move || NcclCommunicator::form(nccl, id, (rank, ranks), &mut || true))
            })
            .collect();
        let formed = ranks.into_iter().map(|rank| rank.join().unwrap().unwrap());
        formed.collect()
    })
}

#[test]
fn ranks_sum_in_place() {
    let nccl = StandInBehaviour::Usual.open().unwrap();
    assert_eq!(nccl.version(), "2.27.3");
    let mut ranks = formed(&nccl, 3);
    let streams: [StandInStream; 3] = std::array::from_fn(|_| StandInStream::default());
    let mut numbers = [[1.0, 2.0], [10.0, 20.0], [100.0, 200.0]];
    for ((rank, stream), numbers) in ranks.iter_mut().zip(&streams).zip(&mut numbers) {
        stream.sum(rank, numbers);
    }
    while streams.iter().any(|stream| !stream.is_done()) {
        thread::yield_now();
    }
    assert_eq!(numbers, [[111.0, 222.0]; 3]);
    assert!(ranks.iter_mut().all(|rank| rank.failed().is_none()));
}

/// A missing rank blocks neither the creation of a communicator nor a sum.
#[test]
fn missing_rank_does_not_block_the_others() {
    let nccl = StandInBehaviour::Usual.open().unwrap();
    let mut looks = 0;
    let alone = NcclCommunicator::form(&nccl, nccl.id().unwrap(), (0, 2), &mut || {
        looks += 1;
        looks < 10
    });
    assert_eq!(alone.unwrap_err(), AllReduceError::GivenUp);
    assert_eq!(looks, 10);

    let mut ranks = formed(&nccl, 2);
    let (stream, mut numbers) = (StandInStream::default(), [1.0; 4]);
    stream.sum(&mut ranks[0], &mut numbers);
    assert!(!stream.is_done() && ranks[0].failed().is_none());
    ranks.truncate(0);
    assert!(stream.is_done(), "what was aborted touches nothing more");
    assert_eq!(numbers, [1.0; 4]);
}

#[test]
fn nccl_errors_contain_the_library_text() {
    let nccl = StandInBehaviour::Refuses.open().unwrap();
    let refused = NcclCommunicator::form(&nccl, nccl.id().unwrap(), (0, 1), &mut || true);
    let error = refused.unwrap_err().to_string();
    assert_eq!(
        error,
        "NCCL could not form a communicator: the stand-in refuses"
    );
    let error = StandInBehaviour::Ancient.open().unwrap_err().to_string();
    assert_eq!(
        error,
        "NCCL 2.18.5 is older than 2.22.3, the oldest that is used"
    );
}

/// Covers the symbols and the creation of ids, which need no GPU. The library is searched as tasks
/// search it. PyPI's `nvidia-nccl-cu13` is large, so this test is run by hand.
#[test]
#[ignore = "needs NCCL: set MUSTER_CUDA_LIBRARIES to the folder of libnccl.so.2"]
fn real_library_has_the_required_symbols() {
    let nccl = Nccl::find().expect("libnccl");
    let [a, b] = [(); 2].map(|()| nccl.id().unwrap().0);
    assert_ne!(a, b, "NCCL {}", nccl.version());
    assert_ne!(a, [0; ID_BYTES]);
    println!("NCCL {}", nccl.version());
}
