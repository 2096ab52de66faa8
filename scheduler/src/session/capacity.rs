//! Validation of what a node says it has.

use super::{decode, decode_status};
use muster_model::node::Capacity;
use muster_model::spec::check_labels;
use muster_proto::session as proto;
use tonic::Status;

const MAX_GPUS: usize = 64;
/// Maximum generation in a Hello: far above real ones and far below the limit of the database's
/// integers.
const MAX_GENERATION: u64 = 1 << 53;

/// Capacity of the node. Validates the rest of the Hello.
pub(super) fn capacity(hello: &proto::Hello) -> Result<Capacity, Status> {
    if hello.generation > MAX_GENERATION {
        return Err(Status::invalid_argument(format!(
            "generation is {}; expected at most {MAX_GENERATION}",
            hello.generation
        )));
    }
    let capacity: Capacity =
        decode::json("capacity_json", &hello.capacity_json).map_err(decode_status)?;
    let in_order = capacity
        .gpus
        .iter()
        .enumerate()
        .all(|(at, gpu)| gpu.index as usize == at);
    if capacity.gpus.len() > MAX_GPUS || !in_order {
        return Err(Status::invalid_argument(
            "capacity.gpus: expected at most 64, numbered from 0 in order",
        ));
    }
    if let Some(rack) = &capacity.rack
        && !(1..=253).contains(&rack.len())
    {
        return Err(Status::invalid_argument(format!(
            "capacity.rack has {} characters; expected 1 to 253",
            rack.len()
        )));
    }
    check_labels("capacity.labels", &capacity.labels).map_err(|errors| {
        let said: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Status::invalid_argument(said.join("; "))
    })?;
    Ok(capacity)
}
