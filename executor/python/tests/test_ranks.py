import pathlib
import subprocess
import sys
import tempfile
import unittest

from muster import _ranks

PACKAGE = pathlib.Path(__file__).resolve().parents[1]

# Rank 1 of 2 sees the flag at step 3, rank 0 at step 5. Prints the step at which each acts.
PROGRAM = """
import sys
import torch.distributed as distributed
from muster import _ranks

rank = int(sys.argv[1])
distributed.init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=2)
step = next(step for step in range(9) if _ranks.any_rank(step >= 5 - 2 * rank))
_ranks.barrier()
print(step)
"""


class Agreement(unittest.TestCase):
    def test_single_rank_decides_alone(self):
        self.assertEqual((_ranks.any_rank(True), _ranks.any_rank(False)), (True, False))
        _ranks.barrier()

    def test_ranks_act_at_the_same_step(self):
        try:
            import torch.distributed  # noqa: F401
        except ImportError:
            self.skipTest("needs torch: MUSTER_PYTHON names a python with it")
        with tempfile.TemporaryDirectory() as folder:
            start = [[sys.executable, "-c", PROGRAM, str(rank), f"{folder}/meeting"] for rank in (0, 1)]
            processes = [subprocess.Popen(argv, cwd=PACKAGE, stdout=subprocess.PIPE, encoding="utf-8") for argv in start]
            steps = [process.communicate(timeout=60)[0].strip() for process in processes]
        self.assertEqual(steps, ["3", "3"])
