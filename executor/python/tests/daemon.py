"""A server that stands for a node's daemon."""

import time

from .server import Server


class Daemon(Server):
    """Answers as a node's daemon does to a task."""

    def __init__(self, **stopping):
        self.stopping = {"stopping": False, **stopping}
        super().__init__(self.answered)

    def answered(self, request):
        if request.path == "/muster/v1/stopping":
            time.sleep(0.02)
            return (200, self.stopping)
        return (200, {})

    def __exit__(self, *_):
        # Ends the threads that ask for the stop, which would reach the servers of later tests.
        self.stopping["stopping"] = True
        time.sleep(0.1)
        super().__exit__()

    def environment(self, **more):
        """Returns the variables of a task."""
        return {"MUSTER_JOB_ID": "01-23", "MUSTER_TRACKING_URI": self.url, "MUSTER_TRACKING_TOKEN": "t", **more}

    def bodies(self, end):
        """Returns the bodies of the requests whose path ends so."""
        return [request.json() for request in self.requests if request.path.endswith(end)]

    def points(self):
        """Returns the reported values as (step, name, value)."""
        return [(point["step"], point["key"], point["value"]) for body in self.bodies("log-batch") for point in body["metrics"]]

    def checkpoints(self):
        """Returns the reported checkpoints."""
        return [body["step"] for body in self.bodies("/checkpoint")]


def until(condition):
    """Waits until the condition holds. Raises :class:`AssertionError` after 4 s."""
    for _ in range(200):
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError("it did not happen within 4 s")
