"""Set-up of stories: the chart's pods as processes of this machine (kubelet.py), on a real Postgres
whose owner is not a superuser. Needs built daemons in MUSTER_PROGRAMS.
"""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import unittest

import yaml
from chart import CHART, NAMESPACE, objects, render
from kubelet import Machine, Service, free_port, until

STEPS = 700
JOB = f"""
version: muster/v1
name: through-it-all
engine:
  model: {{ kind: cnn, channels: [16, 32], dense: [64] }}
  dataset: {{ name: fashion-mnist, train_limit: 12800, test_limit: 2000 }}
  optimizer: {{ kind: adam, learning_rate: 0.001 }}
  batch: 128
  seed: 3
scale:
  workers: {{ min: 1, max: 1 }}
  ps_shards: {{ min: 1, max: 1 }}
checkpoint: {{ every_steps: 50, keep: 3 }}
stop: {{ steps: {STEPS} }}
"""
VALUES = {
    "postgres": {"external": {"setRolePasswords": True}},
    "joinToken": {"existingSecret": "join"},
    "scheduler": {"leaseMs": 3000, "heartbeatMs": 500, "graceMs": 4000, "logFormat": "text"},
    "executor": {"logFormat": "text", "pools": {"gpu": None, "cpu": {"gpus": "none", "cpuSlots": 2, "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}}},
}


def programs_in(variable):
    return pathlib.Path(os.environ[variable]).resolve()


class Postgres:
    """A private server. `owner` owns the database and may create roles, but is not a superuser."""

    def __init__(self, root, address="127.0.0.1"):
        self.address = address
        self.programs = pathlib.Path(os.environ["MUSTER_POSTGRES_BIN"])
        self.port = free_port()
        # Postgres refuses to run as root.
        self.user = {"user": 65534, "group": 65534} if os.geteuid() == 0 else {}
        self.data = pathlib.Path(root, "postgres")
        self.data.mkdir(mode=0o700)
        if self.user:
            os.chown(self.data, 65534, 65534)
        self.call("initdb", "--pgdata", self.data, "--username", "root", "--auth-host", "scram-sha-256", "--auth-local", "trust", "--no-sync", "--encoding", "UTF8")
        with open(self.data / "pg_hba.conf", "a") as admitted:
            admitted.write("host all all samenet scram-sha-256\n")
        # Run by the server itself, because a Postgres from npm has no psql.
        self.call("postgres", "--single", "-D", self.data, "postgres", input="create role owner login createrole password 'owner'\ncreate database muster owner owner\n")
        options = [f"--port={self.port}", f"--listen_addresses={address}", f"--unix_socket_directories={self.data}", "--fsync=off"]
        with open(self.data.parent / "postgres.log", "wb") as log:
            self.process = subprocess.Popen([self.programs / "postgres", "-D", self.data, *options], cwd=self.data, stdout=log, stderr=log, **self.user)
        until("Postgres listens", self.listens)

    def call(self, program, *arguments, input=None):
        command = [self.programs / program, *arguments]
        return subprocess.run(command, cwd=self.data, input=input, capture_output=True, text=True, check=True, timeout=60, **self.user)

    def listens(self):
        with socket.socket() as client:
            return client.connect_ex((self.address, self.port)) == 0

    def url(self, role):
        return f"postgres://{role}:{role}@{self.address}:{self.port}/muster"

    def stop(self):
        self.process.terminate()
        self.process.wait(30)


class Stage(unittest.TestCase):
    def prepare(self, data, chart=CHART, programs=None):
        """Prepares everything but the pods. Executors have a data volume of kind `data`."""
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-chart-"))
        self.root.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        self.postgres = Postgres(self.root)
        self.addCleanup(self.postgres.stop)
        (self.root / "values.yaml").write_text(yaml.safe_dump({**VALUES, "executor": {**VALUES["executor"], "data": {"kind": data}}}))
        url = self.postgres.url
        secrets = {
            "muster-postgres": {
                "owner-url": url("owner"), "api-url": url("muster_api"), "scheduler-url": url("muster_scheduler"),
                "api-password": "muster_api", "scheduler-password": "muster_scheduler",
            },
            "join": {"join-token": "of this test and of no other"},
        }
        self.rest, self.sessions = free_port(), Service()
        ports = {"0.0.0.0:7070": self.rest, f"muster-scheduler.{NAMESPACE}.svc:7071": self.sessions.port}
        self.machine = Machine(self.root, self.rendered(chart), secrets, programs or programs_in("MUSTER_PROGRAMS"), ports)
        self.addCleanup(self.machine.stop)
        datasets = self.root / "claims/muster-datasets"
        datasets.parent.mkdir()
        datasets.symlink_to(pathlib.Path(os.environ["MUSTER_DATASETS"]).resolve())

    def rendered(self, chart=CHART):
        return objects(render([self.root / "values.yaml"], chart=chart))

    def migrate(self):
        migration = self.machine.start("Job", "muster-migrate")
        self.assertEqual(migration.process.wait(60), 0, migration.log.read_text())

    def api(self):
        pod = self.machine.start("Deployment", "muster-api")
        until("the api is ready", pod.is_ready)
        return pod

    def muster(self, *arguments):
        """Returns the output of the command line, as a list for commands that print several
        lines."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), "MUSTER_SERVER": f"http://127.0.0.1:{self.rest}", "MUSTER_TOKEN": self.token}
        ran = subprocess.run([self.machine.programs / "muster", "-o", "json", *arguments], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout) if arguments[0] != "events" else [json.loads(line) for line in ran.stdout.splitlines()]

    def job(self):
        return self.muster("show", "through-it-all")

    def trained(self, step):
        def is_so():
            job = self.job()
            self.assertNotIn(job["phase"], ("failed", "succeeded"), job)
            return job["phase"] == "running" and (job.get("progress") or {}).get("step", 0) >= step

        until(f"step {step}", is_so, 120)

    def scheduler(self):
        port = free_port()
        pod = self.machine.start("Deployment", "muster-scheduler", {"0.0.0.0:7071": port, "0.0.0.0:7073": free_port()})
        until("the scheduler is ready", pod.is_ready)
        self.sessions.backends.append(("127.0.0.1", port))
        return pod

    def leader(self, schedulers):
        return until("one leads", lambda: next((pod for pod in schedulers if " leading" in pod.log.read_text()), None))

    def executor(self):
        pod = self.machine.start("DaemonSet", "muster-executor-cpu")
        until("the executor is ready", pod.is_ready)
        return pod
