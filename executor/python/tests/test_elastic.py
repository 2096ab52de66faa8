import collections
import itertools
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unittest

from muster.elastic import ElasticBatches, Permutation, share

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

# Trains y = wx by DDP, with a batch that neither the ranks nor the parts divide. Prints w.
PROGRAM = """
import sys
import torch
from muster.elastic import ElasticBatches, TorchBatches

rank, size = int(sys.argv[1]), int(sys.argv[2])
torch.distributed.init_process_group("gloo", init_method="file://" + sys.argv[3], rank=rank, world_size=size)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
torch.nn.init.zeros_(model.module.weight)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.linspace(0, 1, 50).reshape(-1, 1)
order = ElasticBatches(50, 14, rank=rank, world_size=size, max_local=4)
loader = torch.utils.data.DataLoader(data, batch_sampler=TorchBatches(order))
while order.epoch < 2:
    for number, x in enumerate(loader, 1):
        loss = ((model(x) - x**2) ** 2).mean() * order.weight(len(x))
        loss.backward()
        if number % order.accumulate == 0:
            optimizer.step()
            optimizer.zero_grad()
            order.advance()
print(model.module.weight.item())
"""


def ranks(world_size, state=None, **options):
    """Returns the batches of all ranks, continued at a state."""
    made = [ElasticBatches(rank=rank, world_size=world_size, **options) for rank in range(world_size)]
    for one in made:
        if state is not None:
            one.load(state)
    return made


def train(every_rank, steps):
    """Trains at most this number of steps of an epoch. Returns the samples of each step."""
    done = []
    readers = [iter(one) for one in every_rank]
    accumulate = every_rank[0].accumulate
    for _ in range(min(steps, every_rank[0].steps_left)):
        done.append([index for reader in readers for part in itertools.islice(reader, accumulate) for index in part])
        for one in every_rank:
            one.advance()
    return done


class Shares(unittest.TestCase):
    def test_parts_cover_the_whole_and_differ_by_one(self):
        for total, parts in itertools.product(range(20), range(1, 8)):
            pieces = [share(total, parts, index) for index in range(parts)]
            self.assertEqual([at for piece in pieces for at in piece], list(range(total)))
            self.assertLessEqual(max(map(len, pieces)) - min(map(len, pieces)), 1)


class Permutations(unittest.TestCase):
    def test_each_index_occurs_once(self):
        for length in [*range(1, 70), 1000, 4099]:
            for epoch in range(3):
                order = Permutation(length, 7, epoch)
                self.assertEqual(sorted(order[index] for index in range(length)), list(range(length)))

    def test_epochs_and_seeds_differ(self):
        orders = [tuple(Permutation(100, seed, epoch)[at] for at in range(100)) for seed in (0, 1, -1, 2**63) for epoch in range(3)]
        self.assertEqual(len(set(orders)), len(orders))

    def test_order_does_not_change_between_releases(self):
        self.assertEqual([Permutation(10, 1, 2)[at] for at in range(10)], FIXED)

    def test_indices_are_spread_evenly(self):
        # Bounds of the chi-squared distribution with (length - 1)^2 degrees of freedom at 0.1 %.
        for length, most in ((3, 18.5), (7, 68.0), (13, 202.0)):
            rounds = 2000
            counts = collections.Counter((at, Permutation(length, 3, epoch)[at]) for epoch in range(rounds) for at in range(length))
            expected = rounds / length
            found = sum((counts[pair] - expected) ** 2 / expected for pair in itertools.product(range(length), repeat=2))
            self.assertLess(found, most, f"length {length}")

    def test_neighbours_are_separated(self):
        order = Permutation(10_000, 0, 0)
        close = sum(abs(order[at + 1] - order[at]) < 100 for at in range(9_999))
        self.assertLess(close, 300)  # 2 % of a uniform order


class Epochs(unittest.TestCase):
    def test_each_sample_occurs_once_across_a_resize_at_any_step(self):
        length, batch = 53, 8
        sizes = [1, 2, 3, 4, 8]
        for before, after in itertools.product(sizes, sizes):
            for stop in range(1, -(-length // batch) + 1):
                options = {"length": length, "global_batch": batch, "seed": 5}
                first = ranks(before, **options)
                done = train(first, stop)
                states = [one.state() for one in first]
                self.assertEqual(states, [states[0]] * before)
                # A checkpoint is written and read.
                second = ranks(after, json.loads(json.dumps(states[0])), **{**options, "seed": 0})
                while second[0].epoch < 2 and len(done) < 99:
                    done += train(second, 99)
                stream = [index for step in done for index in step]
                for epoch in range(2):
                    self.assertEqual(sorted(stream[epoch * length : (epoch + 1) * length]), list(range(length)), (before, after, stop))

    def test_steps_have_the_same_samples_for_any_number_of_ranks(self):
        expected = train(ranks(1, length=40, global_batch=12), 9)
        for world_size, most in itertools.product((2, 3, 5, 12), (None, 3)):
            self.assertEqual(train(ranks(world_size, length=40, global_batch=12, max_local=most), 9), expected)

    def test_random_resizes_lose_no_sample(self):
        draws = random.Random(1)
        for _ in range(30):
            length, batch = draws.randint(1, 60), draws.randint(6, 20)
            state, done = None, []
            for _ in range(12):
                group = ranks(draws.randint(1, 6), state, length=length, global_batch=batch)
                done += train(group, draws.randint(1, 4))
                state = group[0].state()
            stream = [index for step in done for index in step]
            self.assertTrue(all(len(step) == batch for step in done))
            for begin in range(0, len(stream) - length + 1, length):
                self.assertEqual(sorted(stream[begin : begin + length]), list(range(length)))

    def test_incomplete_batch_can_be_dropped(self):
        group = ranks(2, length=53, global_batch=8, drop_last=True)
        done = train(group, 99)
        self.assertEqual((len(done), group[0].state()["epoch"], group[0].position), (6, 1, 0))
        self.assertEqual(len({index for step in done for index in step}), 48)

    def test_larger_batch_after_a_checkpoint_starts_the_next_epoch(self):
        small = ranks(1, length=20, global_batch=4, drop_last=True)
        train(small, 4)
        [large] = ranks(1, small[0].state(), length=20, global_batch=8, drop_last=True)
        self.assertEqual((large.epoch, large.position), (1, 0))

    def test_reading_ahead_does_not_move_the_state(self):
        one = ElasticBatches(20, 4)
        ahead = list(one)
        self.assertEqual((one.state()["position"], len(ahead), len(one)), (0, 5, 5))
        one.advance()
        self.assertEqual(list(one), ahead[1:])

    def test_order_without_shuffle_is_that_of_the_data(self):
        self.assertEqual(list(ElasticBatches(5, 2, shuffle=False)), [[0, 1], [2, 3], [4, 0]])


class Parts(unittest.TestCase):
    def test_parts_respect_the_limit_and_are_equally_many(self):
        for world_size, most in ((1, 3), (2, 5), (3, 4), (7, 2)):
            group = ranks(world_size, length=100, global_batch=30, max_local=most)
            batches = [list(one) for one in group]
            self.assertLessEqual(max(len(part) for one in batches for part in one), most)
            self.assertEqual({len(one) for one in batches}, {4 * group[0].accumulate})
            self.assertEqual({len(one) for one in group}, {4 * group[0].accumulate})

    def test_weighted_means_give_the_mean_of_the_global_batch(self):
        losses = {index: float(index * index) for index in range(100)}
        for world_size in (1, 3, 4, 7):
            group = ranks(world_size, length=100, global_batch=30, max_local=4)
            per_rank, whole = [], []
            for one in group:
                parts = list(itertools.islice(iter(one), one.accumulate))
                whole += [losses[index] for part in parts for index in part]
                per_rank.append(sum(one.weight(len(part)) * sum(losses[index] for index in part) / len(part) for part in parts))
            self.assertAlmostEqual(sum(per_rank) / world_size, sum(whole) / len(whole))


class Mistakes(unittest.TestCase):
    def test_wrong_arguments_name_what_is_right(self):
        cases = [
            ({"length": 0, "global_batch": 1}, "expected at least 1"),
            ({"length": 3, "global_batch": 4, "drop_last": True}, "expected at least 4"),
            ({"length": 9, "global_batch": 2, "world_size": 3}, "expected at least 3"),
            ({"length": 9, "global_batch": 7, "world_size": 4, "max_local": 1}, "expected at least 8"),
            ({"length": 9, "global_batch": 7, "rank": 1}, "expected 0 to 0"),
            ({"length": 9, "global_batch": 7, "max_local": 0}, "max_local is 0"),
        ]
        for arguments, said in cases:
            with self.assertRaisesRegex(ValueError, said):
                ElasticBatches(**arguments)

    def test_other_data_is_refused(self):
        with self.assertRaisesRegex(ValueError, "has 9 samples; expected 8"):
            ElasticBatches(9, 2).load(ElasticBatches(8, 2).state())


class Torch(unittest.TestCase):
    def test_data_loader_with_processes_continues_exactly(self):
        try:
            from torch.utils.data import DataLoader, Sampler
        except ImportError:
            self.skipTest("needs torch: MUSTER_PYTHON names a python with it")
        from muster.elastic import TorchBatches

        order = ElasticBatches(20, 4, seed=2)
        expected = list(order)
        sampler = TorchBatches(order)
        self.assertIsInstance(sampler, Sampler)
        loader = DataLoader(list(range(20)), batch_sampler=sampler, num_workers=2)
        self.assertEqual((len(loader), [batch.tolist() for batch in loader]), (5, expected))
        order.advance()
        self.assertEqual([batch.tolist() for batch in loader], expected[1:])

    def test_training_is_the_same_with_one_and_three_ranks(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("needs torch: MUSTER_PYTHON names a python with it")
        results = []
        for world_size in (1, 3):
            with tempfile.TemporaryDirectory() as folder:
                start = [[sys.executable, "-c", PROGRAM, str(rank), str(world_size), f"{folder}/meeting"] for rank in range(world_size)]
                processes = [subprocess.Popen(argv, cwd=PACKAGE, stdout=subprocess.PIPE, encoding="utf-8") for argv in start]
                results += [float(process.communicate(timeout=60)[0]) for process in processes]
        for weight in results:
            self.assertAlmostEqual(weight, results[0], places=5)


#: Order of ten samples with seed 1 in epoch 2. A change would repeat and leave out samples of jobs
#: that continue with a newer release.
FIXED = [3, 7, 1, 5, 2, 0, 8, 9, 6, 4]
