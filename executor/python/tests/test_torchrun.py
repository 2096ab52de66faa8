import concurrent.futures
import json
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import unittest.mock

try:
    from torch.distributed.elastic.rendezvous import RendezvousClosedError, RendezvousError, RendezvousParameters

    from muster import torchrun
except ImportError:
    torchrun = None

PACKAGE = pathlib.Path(__file__).resolve().parents[1]
#: Longest wait of a test, in seconds.
LONGEST_S = 60


class Job:
    """A job of agents with one `peers.json` for all."""

    def __init__(self, folder, restarts=1):
        self.folder = pathlib.Path(folder)
        self.restarts = restarts
        self.pool = concurrent.futures.ThreadPoolExecutor(8)
        self.addresses = {}
        self.agents = {}

    def agent(self, task):
        params = RendezvousParameters("muster", self.address(task), "job", 1, 8, restarts=str(self.restarts))
        self.agents[task] = torchrun.MusterRendezvous(params, {"MUSTER_TASK_ID": task, "MUSTER_TASK_DIR": str(self.folder)})
        return self.agents[task]

    def address(self, task):
        if task not in self.addresses:
            with socket.socket() as listener:
                listener.bind(("127.0.0.1", 0))
                self.addresses[task] = f"127.0.0.1:{listener.getsockname()[1]}"
        return self.addresses[task]

    def write(self, revision, tasks, without_address=()):
        workers = [{"task_id": task, "node_id": "n", "address": None if task in without_address else self.address(task)} for task in tasks]
        new = self.folder / "new.json"
        new.write_text(json.dumps({"revision": revision, "workers": workers, "ps_shards": []}))
        new.rename(self.folder / "peers.json")

    def start(self, task):
        return self.pool.submit(self.agents[task].next_rendezvous)

    def meet(self, *tasks):
        """Returns rank, size and port of the workers' store of each agent."""
        return [told(waiting) for waiting in [self.start(task) for task in tasks]]


def told(waiting):
    info = waiting.result(LONGEST_S)
    return info.rank, info.world_size, info.bootstrap_store_info.master_port


def until(condition):
    end = time.monotonic() + LONGEST_S
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


@unittest.skipIf(torchrun is None, "needs torch")
class Rendezvous(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.job = Job(folder.name)

    def waiting(self, *tasks):
        return [self.job.agents[task].num_nodes_waiting() for task in tasks]

    def test_agents_meet_in_the_order_of_the_task_set(self):
        job = self.job
        for task in "abc":
            job.agent(task)
        job.write(3, "abc")
        (*_, port), second, third = job.meet("a", "b", "c")
        self.assertEqual((second, third), ((1, 3, port), (2, 3, port)))
        self.assertEqual(self.waiting("a", "b", "c"), [0, 0, 0])
        starts = json.loads((job.folder / "rendezvous.json").read_text())
        self.assertEqual(starts, {"revision": 3, "attempt": 0, "workers": 3})

    def test_own_address_need_not_be_known_to_the_scheduler(self):
        job = self.job
        job.agent("a")
        job.write(1, "a", without_address="a")
        self.assertEqual(job.meet("a")[0][:2], (0, 1))

    def test_workers_train_until_new_agents_wait(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        job.write(1, "ab")
        before = job.meet("a", "b")[0]
        job.write(2, "abc", without_address="c")
        self.assertEqual(self.waiting("a", "b"), [0, 0])
        job.write(2, "abc")
        self.assertEqual(self.waiting("a", "b"), [0, 0], "the new agent does not wait yet")
        job.agent("c")
        new = job.start("c")
        until(lambda: self.waiting("a", "b") == [1, 1])
        first, second = job.meet("a", "b")
        self.assertEqual([one[:2] for one in (first, second, told(new))], [(0, 3), (1, 3), (2, 3)])
        self.assertNotEqual(first[2], before[2], "the store of the workers is new")
        self.assertEqual(self.waiting("a", "b", "c"), [0, 0, 0])

    def test_agents_continue_without_one_that_left(self):
        job = self.job
        for task in "abc":
            job.agent(task)
        job.write(1, "abc")
        job.meet("a", "b", "c")
        job.write(2, "ac")
        self.assertEqual(self.waiting("a", "b", "c"), [1, 0, 1])
        self.assertEqual([one[:2] for one in job.meet("a", "c")], [(0, 2), (1, 2)])

    def test_rendezvous_of_an_outdated_task_set_is_given_up(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        job.write(1, "abc")
        job.address("c")
        waiting = [job.start(task) for task in "ab"]
        time.sleep(0.3)
        self.assertFalse(any(one.done() for one in waiting))
        job.write(2, "ab")
        self.assertEqual([told(one)[:2] for one in waiting], [(0, 2), (1, 2)])

    def test_failed_workers_restart_with_those_of_all_agents(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        job.write(1, "ab")
        job.meet("a", "b")
        failed = job.start("b")
        until(lambda: self.waiting("a") == [1])
        self.assertEqual((job.meet("a")[0][:2], told(failed)[:2]), ((0, 2), (1, 2)))
        for waiting in [job.start(task) for task in "ab"]:
            with self.assertRaisesRegex(RendezvousError, "have failed 2 times"):
                waiting.result(LONGEST_S)

    def test_failures_are_counted_anew_after_a_change(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        for revision in range(1, 4):
            job.write(revision, "ab")
            job.meet("a", "b")
            job.meet("a", "b")

    def test_agent_meets_none_after_the_end_of_another(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        job.write(1, "ab")
        store = [waiting.result(LONGEST_S).store for waiting in [job.start(task) for task in "ab"]][1]
        store.add(torchrun.EXIT_BARRIER, 1)
        job.write(2, "a")
        self.assertEqual(self.waiting("a"), [0], "its workers are about to end")
        with self.assertRaises(RendezvousClosedError):
            job.start("a").result(LONGEST_S)

    def test_agent_that_comes_after_the_end_ends_well(self):
        job = self.job
        job.agent("a")
        job.write(1, "a")
        job.meet("a")
        job.write(2, "ab")
        job.agent("b")
        late = job.start("b")
        time.sleep(0.3)
        self.assertTrue(job.agents["a"].shutdown())
        with self.assertRaises(SystemExit) as ended:
            late.result(LONGEST_S)
        self.assertEqual(ended.exception.code, 0)

    def test_agent_asks_again_after_a_late_answer(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        job.write(1, "ab")
        job.meet("a", "b")
        board = job.agents["b"]._board
        late = unittest.mock.Mock(get=unittest.mock.Mock(side_effect=RuntimeError("wait timeout")))
        board.store = late
        self.assertEqual(self.waiting("b"), [0])
        self.assertIsNot(board.store, late)

    def test_loss_of_the_first_worker_is_that_of_a_peer(self):
        job = self.job
        for task in "ab":
            job.agent(task)
        job.write(1, "ab")
        job.meet("a", "b")
        for kept in ("_board", "_joined", "_served"):
            setattr(job.agents["a"], kept, None)
        with self.assertRaises(SystemExit) as ended:
            until(lambda: self.waiting("b") == [1])
        self.assertEqual(ended.exception.code, torchrun.PEER_LOST)

    def test_torchrun_finds_the_backend_beside_the_package(self):
        written = (PACKAGE.parent / "src/command/torchrun.rs").read_text()
        self.assertIn("[torchrun.handlers]\\nmuster = muster.torchrun:creator\\n", written)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "muster").symlink_to(PACKAGE / "muster")
            described = pathlib.Path(folder, "muster_task-1.dist-info")
            described.mkdir()
            (described / "METADATA").write_text("Metadata-Version: 2.1\nName: muster-task\nVersion: 1\n")
            (described / "entry_points.txt").write_text("[torchrun.handlers]\nmuster = muster.torchrun:creator\n")
            script = "from torch.distributed.elastic.rendezvous import rendezvous_handler_registry as r; print(r._registry['muster'].__module__)"
            said = subprocess.run([sys.executable, "-c", script], env={"PYTHONPATH": folder}, stdout=subprocess.PIPE, check=True, encoding="utf-8")
        self.assertEqual(said.stdout.strip(), "muster.torchrun")
