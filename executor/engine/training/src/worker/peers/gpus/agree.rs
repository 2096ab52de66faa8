//! Decides whether gradients are summed on the host. It is a function of the members' own data in a
//! view, so all workers come to the same result.

use muster_comm::fabric::{GpuSumSupport, ViewMember};

/// Returns why the gradients of these members, in order of rank, cannot be summed on GPUs, if there
/// is a reason. A step has `batch` examples.
pub fn why_not(members: &[ViewMember], batch: usize) -> Option<String> {
    let mut gpus: Vec<(&str, &str, &str)> = Vec::new();
    for (rank, member) in members.iter().enumerate() {
        match member.summing.as_deref() {
            Some(GpuSumSupport::Gpu { library, gpu, kind }) => gpus.push((library, gpu, kind)),
            Some(GpuSumSupport::Host { why }) => {
                return Some(format!("worker {rank} cannot: {why}"));
            }
            None => return Some(format!("worker {rank} says nothing of its GPU")),
        }
    }
    for (rank, (library, gpu, kind)) in gpus.iter().enumerate().skip(1) {
        let (first, _, like) = gpus[0];
        if *library != first {
            return Some(format!(
                "worker 0 has NCCL {first} and worker {rank} has {library}"
            ));
        }
        // The sums would have the same bits, but the updates need not.
        if *kind != like {
            return Some(format!(
                "worker 0 computes on {like} and worker {rank} on {kind}"
            ));
        }
        if let Some(other) = gpus[..rank].iter().position(|(_, known, _)| known == gpu) {
            return Some(format!("workers {other} and {rank} have the same GPU"));
        }
    }
    (batch < members.len()).then(|| "there are more workers than examples in a step".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use muster_model::id::TaskId;
    use uuid::Uuid;

    fn member(summing: Option<GpuSumSupport>) -> ViewMember {
        ViewMember {
            id: TaskId(Uuid::nil()),
            attempt: 1,
            node: String::new(),
            address: ([127, 0, 0, 1], 1).into(),
            local: None,
            completed: None,
            summing: summing.map(Box::new),
        }
    }

    fn gpu(library: &str, gpu: &str, kind: &str) -> ViewMember {
        let [library, gpu, kind] = [library, gpu, kind].map(str::to_owned);
        member(Some(GpuSumSupport::Gpu { library, gpu, kind }))
    }

    /// Returns why two members that fit each other cannot sum on GPUs together with `third`.
    fn why_not_with(third: ViewMember) -> String {
        let [first, second] = fitting();
        why_not(&[first, second, third], 512).unwrap()
    }

    fn fitting() -> [ViewMember; 2] {
        ["a", "b"].map(|id| gpu("2.27.3", id, "H100"))
    }

    #[test]
    fn reason_for_sums_on_the_host_is_named() {
        assert_eq!(why_not(&fitting(), 2), None);
        assert!(
            why_not_with(gpu("2.28.1", "c", "H100")).contains("2.27.3 and worker 2 has 2.28.1")
        );
        assert!(why_not_with(gpu("2.27.3", "c", "A100")).contains("on H100 and worker 2 on A100"));
        assert!(
            why_not_with(gpu("2.27.3", "b", "H100")).contains("workers 1 and 2 have the same GPU")
        );
        let why = "it computes on the CPU".to_owned();
        assert!(
            why_not_with(member(Some(GpuSumSupport::Host { why })))
                .contains("worker 2 cannot: it computes")
        );
        assert!(why_not_with(member(None)).contains("worker 2 says nothing"));
        assert!(why_not(&fitting(), 1).unwrap().contains("more workers"));
    }
}
