"""Order of the samples for data-parallel training whose number of workers changes.

The batch of a step, over all ranks, has the same size and the same samples for any number of
ranks. So a restart with another number changes neither the learning rate that fits nor the order.

    import muster
    from muster.elastic import ElasticBatches, TorchBatches

    world = muster.world()
    order = ElasticBatches(len(data), global_batch=256, rank=world.rank, world_size=world.size, max_local=32)
    order.load(checkpoint["order"])             # after a restart
    loader = DataLoader(data, batch_sampler=TorchBatches(order), num_workers=4)

    while order.epoch < epochs:
        for number, (x, y) in enumerate(loader, 1):
            loss = criterion(model(x), y) * order.weight(len(x))
            loss.backward()
            if number % order.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
                order.advance()                 # checkpoint["order"] = order.state()
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

from ._ranks import any_rank

__all__ = ["ElasticBatches", "Permutation", "TorchBatches", "any_rank", "share"]

_MASK = (1 << 64) - 1
#: Pairs of rounds of the permutation.
ROUNDS = 4


def share(total: int, parts: int, index: int) -> range:
    """Returns the part of `range(total)` that belongs to one of `parts`. The sizes of the parts
    differ by at most one."""
    size, larger = divmod(total, parts)
    begin = index * size + min(index, larger)
    return range(begin, begin + size + (index < larger))


class Permutation:
    """Pseudo-random permutation of `range(length)` that is computed index by index.

    It needs no memory for the order, and any position is reached at once. It is a Feistel network
    over a rectangle that contains the range (Black and Rogaway, "Ciphers with arbitrary finite
    domains", 2002). An index that leaves the range is permuted again.
    """

    def __init__(self, length: int, seed: int, epoch: int) -> None:
        self._length = length
        self._height = math.isqrt(max(length - 1, 0)) + 1
        self._width = -(-length // self._height) or 1
        state = _mixed(seed & _MASK, _mixed(epoch & _MASK, length))
        self._keys: List[Tuple[int, int]] = []
        for number in range(ROUNDS):
            self._keys.append((_mixed(state, 2 * number + 1), _mixed(state, 2 * number + 2)))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._length:
            raise IndexError(f"{index} lies outside of 0 to {self._length - 1}")
        while True:
            row, column = divmod(index, self._width)
            for first, second in self._keys:
                row = (row + _mixed(column, first)) % self._height
                column = (column + _mixed(row, second)) % self._width
            index = row * self._width + column
            if index < self._length:
                return index


def _mixed(value: int, key: int) -> int:
    """Returns 64 mixed bits: the finaliser of SplitMix64."""
    value = (value + key * 0x9E3779B97F4A7C15 + 0x632BE59BD9B4E019) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)


class _Place(NamedTuple):
    """A place in the order: samples of earlier steps are before it."""

    epoch: int
    position: int


class ElasticBatches:
    """Batches of one rank, as lists of indices, from a state that does not depend on the number of
    ranks.

    Each epoch is a permutation of all samples. A step consumes the next `global_batch` samples, of
    which each rank gets an equal share. The last batch of an epoch is filled with the first samples
    of the next epoch, so each sample occurs exactly once per epoch, and no batch is short: ranks
    without a sample would block the others in DDP. With `drop_last` an incomplete batch is left out
    instead.

    With `max_local`, a rank processes its share in `accumulate` parts of at most this size, of which
    the gradients are added. So fewer ranks need no more memory.

    Iteration yields the batches from the present step to the end of its epoch. It does not move the
    state, because data loaders read ahead. :meth:`advance` moves it after each step of the optimizer.
    """

    def __init__(
        self,
        length: int,
        global_batch: int,
        *,
        rank: int = 0,
        world_size: int = 1,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        max_local: Optional[int] = None,
    ) -> None:
        if length < 1 or (drop_last and length < global_batch):
            raise ValueError(f"the data set has {length} samples; expected at least {global_batch if drop_last else 1}")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank is {rank}; expected 0 to {world_size - 1}")
        if max_local is not None and max_local < 1:
            raise ValueError(f"max_local is {max_local}; expected at least 1")
        self.length, self.global_batch = length, global_batch
        self.rank, self.world_size = rank, world_size
        self.seed, self.shuffle, self.drop_last = seed, shuffle, drop_last
        largest = -(-global_batch // world_size)
        #: Number of batches of this rank per step of the optimizer. Equal on all ranks.
        self.accumulate = 1 if max_local is None else -(-largest // max_local)
        if global_batch // world_size < self.accumulate:
            raise ValueError(
                f"global_batch is {global_batch}; expected at least {self.accumulate * world_size}, "
                f"so that each of {world_size} ranks has a sample in each of {self.accumulate} parts"
            )
        self._place = _Place(0, 0)
        self._orders: Dict[int, Permutation] = {}

    @property
    def epoch(self) -> int:
        """Epoch of the next sample."""
        return self._place.epoch

    @property
    def position(self) -> int:
        """Number of samples of the epoch that earlier steps have consumed, over all ranks."""
        return self._place.position

    @property
    def steps_left(self) -> int:
        """Number of steps until the end of the epoch."""
        left = self.length - self._place.position
        return left // self.global_batch if self.drop_last else -(-left // self.global_batch)

    def __len__(self) -> int:
        """Number of batches that iteration yields."""
        return self.steps_left * self.accumulate

    def __iter__(self) -> Iterator[List[int]]:
        place = self._place
        begins_in = place.epoch
        while place.epoch == begins_in:
            parts, place = self._step(place)
            yield from parts

    def advance(self) -> None:
        """Moves the state past the present step. Call it after each step of the optimizer."""
        self._place = self._after(self._place)

    def weight(self, samples: int) -> float:
        """Returns the factor for the mean loss of a batch of this rank. With it, DDP's mean over the
        ranks, added over `accumulate` batches, is the mean of the global batch."""
        return samples * self.world_size / self.global_batch

    def state(self) -> Dict[str, int]:
        """Returns the state for a checkpoint. It is equal on all ranks."""
        return {"epoch": self._place.epoch, "position": self._place.position, "seed": self.seed, "length": self.length}

    def load(self, state: Mapping[str, int]) -> None:
        """Continues at a state, of any number of ranks. Takes over its seed.

        Raises :class:`ValueError` if the data set has another length.
        """
        if state["length"] != self.length:
            raise ValueError(f"the data set has {self.length} samples; expected {state['length']}, as in the checkpoint")
        self.seed = int(state["seed"])
        self._orders.clear()
        place = _Place(int(state["epoch"]), int(state["position"]))
        # The batch may be larger than that of the checkpoint.
        rest = self.length - place.position
        self._place = _Place(place.epoch + 1, 0) if self.drop_last and rest < self.global_batch else place

    def _after(self, place: _Place) -> _Place:
        position = place.position + self.global_batch
        if self.drop_last:
            return _Place(place.epoch, position) if position + self.global_batch <= self.length else _Place(place.epoch + 1, 0)
        # A batch may be larger than the data set.
        return _Place(place.epoch + position // self.length, position % self.length)

    def _step(self, place: _Place) -> Tuple[List[List[int]], _Place]:
        """Returns the batches of this rank in one step, and the place after it."""
        local = share(self.global_batch, self.world_size, self.rank)
        parts = (share(len(local), self.accumulate, part) for part in range(self.accumulate))
        indices = [[self._sample(place, local[at]) for at in part] for part in parts]
        return indices, self._after(place)

    def _sample(self, place: _Place, number: int) -> int:
        beyond, position = divmod(place.position + number, self.length)
        return self._order(place.epoch + beyond)[position] if self.shuffle else position

    def _order(self, epoch: int) -> Permutation:
        if epoch not in self._orders:
            if len(self._orders) > 8:
                self._orders.clear()
            self._orders[epoch] = Permutation(self.length, self.seed, epoch)
        return self._orders[epoch]


if TYPE_CHECKING:

    class TorchBatches:
        """Batch sampler of torch for :class:`ElasticBatches`: the argument `batch_sampler` of a
        `DataLoader`."""

        def __init__(self, batches: ElasticBatches) -> None: ...

        def __iter__(self) -> Iterator[List[int]]: ...

        def __len__(self) -> int: ...


def __getattr__(name: str) -> Any:
    # The class is made at its first use, because torch takes seconds to import.
    if name != "TorchBatches":
        raise AttributeError(f"module 'muster.elastic' has no attribute {name!r}")
    from torch.utils.data import Sampler

    class TorchBatches(Sampler):  # type: ignore[type-arg,misc,unused-ignore]
        """Batch sampler of torch for :class:`ElasticBatches`."""

        def __init__(self, batches: ElasticBatches) -> None:
            self.batches = batches

        def __iter__(self) -> Iterator[List[int]]:
            return iter(self.batches)

        def __len__(self) -> int:
            return len(self.batches)

    globals()[name] = TorchBatches
    return TorchBatches
