"""Rendezvous of `torchrun` by the task set of a job with `command.elastic: torchrun`.

`torchrun` finds this module by an entry point, as the backend `muster`. Each worker of the job runs
one agent of `torchrun`. The node's daemon keeps the newest task set in `peers.json`. If it changes,
the agents stop their worker processes and start them again with the new rank and world size. The
agents themselves, and so the tasks, continue.

The agent of the first worker, which never leaves, holds a store at its reserved port. Keys in it:

    REVISION/attempt                 number of the rendezvous within this task set, from 0
    REVISION/stopped                 an agent has stopped its workers for this task set
    REVISION/ATTEMPT/arrived/RANK    an agent waits in this rendezvous
    REVISION/ATTEMPT/decision        its result, which is decided once
    closed                           the first worker has ended
"""

from __future__ import annotations

import datetime
import json
import math
import os
import pathlib
import socket
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

try:
    from torch.distributed import PrefixStore, Store, TCPStore
    from torch.distributed.elastic.rendezvous import (
        RendezvousClosedError,
        RendezvousError,
        RendezvousHandler,
        RendezvousInfo,
        RendezvousParameters,
        RendezvousStoreInfo,
    )
except ImportError as error:
    raise ImportError("muster.torchrun needs PyTorch with torch.distributed.elastic.rendezvous.RendezvousInfo") from error

__all__ = ["MusterRendezvous", "TaskSet", "creator"]

BACKEND = "muster"
#: Pause between two looks at the task set and the store, in seconds.
POLL_S = 0.05
#: Longest single attempt to connect, so that a signal is handled soon, in seconds.
CONNECT_S = 2.0
#: Longest wait for an answer of the store, in seconds.
ANSWER_S = 60.0
#: Time in which the store of the first worker must answer again, in seconds.
PATIENCE_S = 10.0
#: Time for which the first agent keeps the store after its end, for agents that look at it.
LINGER_S = 0.3
#: Exit code for the loss of another task of the job.
PEER_LOST = 75
#: Result of a rendezvous whose task set has changed meanwhile.
AGAIN = '{"again": true}'
#: Key of the barrier in which agents wait after the end of their workers.
EXIT_BARRIER = "torchelastic/agent/terminal_state/num_members"


class TaskSet(NamedTuple):
    """Workers of the job in the order of their ranks."""

    revision: int
    #: Ids of the tasks.
    tasks: Tuple[str, ...]
    #: `host:port` of each task, once it is known.
    addresses: Tuple[Optional[str], ...]

    @property
    def is_complete(self) -> bool:
        return all(self.addresses)

    def rank(self, task: str) -> Optional[int]:
        """Returns the rank of a task; None if the task leaves."""
        return self.tasks.index(task) if task in self.tasks else None


class Joined(NamedTuple):
    """The rendezvous to which the present workers belong."""

    task_set: TaskSet
    attempt: int
    #: Prefix of the keys of the agents in this rendezvous.
    prefix: str


class PeersFile:
    """The newest task set, as the node's daemon writes it."""

    def __init__(self, path: pathlib.Path, task: str, address: str) -> None:
        self._path = path
        self._task = task
        self._address = address
        self._seen: Optional[Tuple[int, int, int]] = None
        self._newest: Optional[TaskSet] = None

    def read(self) -> Optional[TaskSet]:
        """Returns the newest task set; None if there is none yet."""
        try:
            info = os.stat(self._path)
            seen = (info.st_mtime_ns, info.st_ino, info.st_size)
            if seen != self._seen:
                self._newest = self._parse(json.loads(self._path.read_text()))
                self._seen = seen
        except FileNotFoundError:
            pass
        return self._newest

    def _parse(self, peers: Dict[str, Any]) -> TaskSet:
        workers = peers["workers"]
        tasks = tuple(str(worker["task_id"]) for worker in workers)
        addresses = [worker.get("address") for worker in workers]
        # The own address need not return from the scheduler first.
        for rank, task in enumerate(tasks):
            if task == self._task:
                addresses[rank] = addresses[rank] or self._address
        return TaskSet(int(peers["revision"]), tasks, tuple(addresses))


class Board:
    """Store at the first worker. Its loss ends this agent as the loss of a task."""

    def __init__(self, host: str, port: int, is_first: bool) -> None:
        self._address = host, port
        self.is_first = is_first
        self.store: Store = serve(host, port) if is_first else connect(host, port)

    def has(self, keys: List[str]) -> bool:
        return bool(self._ask(lambda: self.store.check(keys)))

    def set(self, key: str) -> None:
        self._ask(lambda: self.store.set(key, "1"))

    def get(self, key: str) -> str:
        return str(self._ask(lambda: self.store.get(key)).decode())

    def compare_set(self, key: str, expected: str, wanted: str) -> str:
        """Sets the key if it has the expected value ("" if it must not exist). Returns its value."""
        return str(self._ask(lambda: self.store.compare_set(key, expected, wanted)).decode())

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Asks once more on a new connection. An answer is late after a suspension of the job."""
        try:
            return question()
        except RuntimeError as error:
            if self.is_first:
                raise
            say(f"the first worker of the job does not answer: {error}")
        try:
            self.store = connect(*self._address, within_s=PATIENCE_S)
            return question()
        except RuntimeError as error:
            say("the first worker of the job is lost")
            raise SystemExit(PEER_LOST) from error


class MusterRendezvous(RendezvousHandler):
    """Rendezvous of one agent."""

    def __init__(self, params: RendezvousParameters, environment: Mapping[str, str] = os.environ) -> None:
        self._run_id = params.run_id
        self._restarts = params.get_as_int("restarts", 0) or 0
        self._task = environment["MUSTER_TASK_ID"]
        folder = pathlib.Path(environment["MUSTER_TASK_DIR"])
        self._file = PeersFile(folder / "peers.json", self._task, params.endpoint)
        self._starts = folder / "rendezvous.json"
        #: Newest complete task set.
        self._complete: Optional[TaskSet] = None
        self._board: Optional[Board] = None
        self._joined: Optional[Joined] = None
        #: Store of the worker processes, at the first agent.
        self._served: Optional[TCPStore] = None

    def get_backend(self) -> str:
        return BACKEND

    def get_run_id(self) -> str:
        return self._run_id

    @property
    def use_agent_store(self) -> bool:
        # Each rendezvous has a new store, so keys of earlier workers do not disturb.
        return True

    def is_closed(self) -> bool:
        return False

    def set_closed(self) -> None:
        pass

    def next_rendezvous(self) -> RendezvousInfo:
        """Waits until all agents of the newest task set are here, and returns rank and size."""
        if self._has_finished():
            raise RendezvousClosedError("other workers of the job have ended already")
        while True:
            task_set = self._target()
            if task_set is not None:
                joined = self._join(task_set)
                if joined is not None:
                    return joined
            time.sleep(POLL_S)

    def num_nodes_waiting(self) -> int:
        """Returns a number above 0 if the agents must meet again: a worker has left, new workers
        wait, or the workers of another agent have failed. Until new agents wait, the present
        workers train on."""
        if self._joined is None or self._board is None:
            return 0
        waiting = self._waiting(self._joined, self._board)
        return 0 if waiting > 0 and self._has_finished() else waiting

    def shutdown(self) -> bool:
        if self._board is not None and self._board.is_first:
            self._board.set("closed")
            time.sleep(LINGER_S)
        return True

    def _target(self) -> Optional[TaskSet]:
        """Returns the task set to meet with: the newest one, or that before it while a new task has
        no address and no other task has left. None: there is none now."""
        newest = self._file.read()
        if newest is None or newest.rank(self._task) is None:
            return None
        if newest.is_complete:
            self._complete = newest
        complete = self._complete
        if complete is None or any(task not in newest.tasks for task in complete.tasks):
            return None
        return complete

    def _join(self, task_set: TaskSet) -> Optional[RendezvousInfo]:
        """Meets with the agents of a task set. Returns None if it has changed meanwhile."""
        board = self._connected(task_set)
        rank = task_set.rank(self._task)
        assert rank is not None, "a target contains the own task"
        attempt = self._attempt(board, task_set.revision)
        if self._joined is not None:
            board.set(f"{task_set.revision}/stopped")
        at = f"{task_set.revision}/{attempt}"
        board.set(f"{at}/arrived/{rank}")
        decision = self._agreed(board, task_set, attempt, rank)
        if "failed" in decision:
            raise RendezvousError(
                f"workers have failed {decision['failed']} times since the job has {len(task_set.tasks)} agents; their errors are above"
            )
        if "port" not in decision:
            return None
        self._joined = Joined(task_set, attempt, f"{at}/agents")
        say(f"revision {task_set.revision}: agent {rank} of {len(task_set.tasks)} starts its workers")
        info = RendezvousStoreInfo(decision["host"], int(decision["port"]))
        store = PrefixStore(self._joined.prefix, board.store)
        return RendezvousInfo(store, rank, len(task_set.tasks), info)

    def _attempt(self, board: Board, revision: int) -> int:
        """Returns the number of the next rendezvous of this task set. Agents whose workers fail at
        the same time ask for the same one."""
        joined, key = self._joined, f"{revision}/attempt"
        if joined is not None and joined.task_set.revision == revision:
            board.compare_set(key, str(joined.attempt), str(joined.attempt + 1))
        else:
            board.compare_set(key, "", "0")
        return int(board.get(key))

    def _agreed(self, board: Board, task_set: TaskSet, attempt: int, rank: int) -> Dict[str, Any]:
        at = f"{task_set.revision}/{attempt}"
        decision = f"{at}/decision"
        arrived = [f"{at}/arrived/{other}" for other in range(len(task_set.tasks))]
        while True:
            if board.has([decision]):
                return dict(json.loads(board.get(decision)))
            if board.has(["closed"]):
                self._leave()
            if rank == 0 and board.has(arrived):
                return self._decide(board, decision, self._offer(task_set, attempt))
            target = self._target()
            if target is None or target.revision != task_set.revision:
                # Decided in the store, so that no agent starts workers and waits for this one.
                return self._decide(board, decision, AGAIN)
            time.sleep(POLL_S)

    def _decide(self, board: Board, key: str, value: str) -> Dict[str, Any]:
        return dict(json.loads(board.compare_set(key, "", value)))

    def _offer(self, task_set: TaskSet, attempt: int) -> str:
        if attempt > self._restarts:
            return json.dumps({"failed": attempt})
        host, _ = split(task_set.addresses[0])
        self._served = serve(host, 0)
        # The node's daemon reads it. The former workers of all agents have ended.
        write(self._starts, {"revision": task_set.revision, "attempt": attempt, "workers": len(task_set.tasks)})
        return json.dumps({"host": host, "port": self._served.port})

    def _waiting(self, joined: Joined, board: Board) -> int:
        present = joined.task_set
        if int(board.get(f"{present.revision}/attempt")) > joined.attempt:
            return 1
        newest = self._target()
        if newest is None or newest.revision == present.revision:
            return 0
        if board.has([f"{newest.revision}/stopped"]):
            return 1
        came = [rank for rank, task in enumerate(newest.tasks) if task not in present.tasks]
        if came and not board.has([f"{newest.revision}/0/arrived/{rank}" for rank in came]):
            return 0
        has_left = any(task not in newest.tasks for task in present.tasks)
        return max(len(came), int(has_left))

    def _has_finished(self) -> bool:
        """Whether the workers of an agent have ended. Such an agent joins no other rendezvous."""
        joined, board = self._joined, self._board
        return joined is not None and board is not None and board.has([f"{joined.prefix}/{EXIT_BARRIER}"])

    def _leave(self) -> None:
        """Ends this agent, because the first worker of the job has ended."""
        if self._joined is None:
            say("the job is done")
            raise SystemExit(0)
        raise RendezvousClosedError("the first worker of the job has ended already")

    def _connected(self, task_set: TaskSet) -> Board:
        if self._board is None:
            host, port = split(task_set.addresses[0])
            self._board = Board(host, port, is_first=task_set.rank(self._task) == 0)
        return self._board


def serve(host: str, port: int) -> TCPStore:
    """Opens a store of this agent; port 0 chooses a free port."""
    return TCPStore(host, port, is_master=True, wait_for_workers=False)


def connect(host: str, port: int, within_s: float = math.inf) -> TCPStore:
    """Connects to the store of the first worker, which may start later.

    Raises :class:`RuntimeError` if this fails for `within_s` seconds.
    """
    until = time.monotonic() + within_s
    while True:
        try:
            # A store that is not there yet would fill the log.
            with socket.create_connection((host, port), timeout=CONNECT_S):
                pass
            wait = datetime.timedelta(seconds=CONNECT_S)
            store = TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait)
            store.set_timeout(datetime.timedelta(seconds=ANSWER_S))
            return store
        except (OSError, RuntimeError) as error:
            if time.monotonic() >= until:
                raise RuntimeError(f"{host}:{port} does not answer: {error}") from error
            time.sleep(POLL_S)


def split(address: Optional[str]) -> Tuple[str, int]:
    """Returns host and port. The host of an IPv6 address has no brackets."""
    host, _, port = (address or "").rpartition(":")
    return host.strip("[]"), int(port)


def write(path: pathlib.Path, content: Dict[str, Any]) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(path)


def say(text: str) -> None:
    print(f"muster.torchrun: {text}", file=sys.stderr, flush=True)


def create(params: RendezvousParameters) -> MusterRendezvous:
    return MusterRendezvous(params)


def creator() -> Callable[[RendezvousParameters], MusterRendezvous]:
    """Entry point: returns the function that creates the rendezvous."""
    return create
