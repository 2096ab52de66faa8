"""Agreement of the ranks of a torch program. Without torch.distributed there is one rank."""

from __future__ import annotations

import sys
from typing import Any


def _group() -> Any:
    # A program that has not imported torch has no process group.
    distributed = sys.modules.get("torch.distributed")
    is_ready = distributed is not None and distributed.is_available() and distributed.is_initialized()
    return distributed if is_ready else None


def any_rank(flag: bool) -> bool:
    """Whether the flag is true on any rank. All ranks must call it at the same step.

    Ranks see a request to stop at different steps. By this all-reduce they act on it at the same
    step.
    """
    distributed = _group()
    if distributed is None:
        return flag
    torch = sys.modules["torch"]
    is_nccl = distributed.get_backend() == "nccl"
    device = torch.device("cuda", torch.cuda.current_device()) if is_nccl else torch.device("cpu")
    told = torch.tensor([int(flag)], device=device)
    distributed.all_reduce(told, op=distributed.ReduceOp.MAX)
    return bool(told.item())


def barrier() -> None:
    """Waits until all ranks are here."""
    distributed = _group()
    if distributed is not None:
        distributed.barrier()
