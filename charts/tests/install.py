"""Installs the chart with helm on a real API server; node.py runs the created pods. A job by
kubectl then trains on real images while helm upgrades the release, rolls it back and finally
uninstalls it.

Needs the daemons in MUSTER_PROGRAMS, Kubernetes in MUSTER_KUBERNETES, root, and a separate network
namespace. With MUSTER_CHART_BEFORE and MUSTER_PROGRAMS_BEFORE that release is installed first, and
the upgrade runs its migrations.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import time
import unittest

import yaml
from chart import CHART, HELM, NAMESPACE
from cluster import HOST, Cluster
from kubelet import until
from node import Node
from stage import Postgres, programs_in

FIRST, NEXT = "0.1.0", "0.1.1"
VALUES = {
    "postgres": {"external": {"setRolePasswords": True}},
    "scheduler": {"logFormat": "text"},
    "executor": {
        "logFormat": "text", "data": {"kind": "hostPath"},
        "pools": {"gpu": None, "cpu": {"gpus": "none", "cpuSlots": 2, "resources": {"requests": {"cpu": "2", "memory": "2Gi"}}}},
    },
    "images": {"executor": {"repository": "muster-executor-cpu"}},
}
JOB = """
apiVersion: muster.dev/v1alpha1
kind: TrainingJob
metadata: { name: NAME, namespace: vision }
spec:
  engine:
    model: { kind: cnn, channels: [16, 32], dense: [64] }
    dataset: { name: fashion-mnist, train_limit: 12800, test_limit: 2000 }
    optimizer: { kind: adam, learning_rate: 0.001 }
    batch: 128
    seed: 3
  scale: { workers: { min: 1, max: 1 } }
  checkpoint: { every_steps: 50, keep: 3 }
  stop: { steps: STEPS }
"""


class Install(unittest.TestCase):
    def setUp(self):
        assert os.geteuid() == 0, "this story makes networks and users' processes, for which it must be root"
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="muster-install-"))
        self.root.chmod(0o755)
        self.addCleanup(shutil.rmtree, self.root, ignore_errors=True)
        page = self.root / "page"
        page.mkdir()
        (page / "index.html").write_text("<title>the page</title>")
        self.node = Node(self.root, page)
        self.postgres = Postgres(self.root, HOST)
        self.addCleanup(self.postgres.stop)
        self.cluster = Cluster(self.root)
        self.addCleanup(self.cluster.stop)
        self.kubectl = self.cluster.kubectl
        before = os.environ.get("MUSTER_CHART_BEFORE")
        programs = programs_in("MUSTER_PROGRAMS")
        self.node.programs = {FIRST: programs_in("MUSTER_PROGRAMS_BEFORE") if before else programs, NEXT: programs}
        self.charts = {FIRST: self.chart(pathlib.Path(before or CHART), FIRST), NEXT: self.chart(CHART, NEXT)}
        self.node.join(self.cluster.api)
        self.addCleanup(self.node.stop)
        self.prepare()

    def chart(self, source, version):
        """Returns a copy of the chart with this version, for a server of Kubernetes 1.20. Only the
        admitted versions and the API version of budgets are changed."""
        chart = self.root / f"chart-{version}"
        shutil.copytree(source, chart)
        about = yaml.safe_load((chart / "Chart.yaml").read_text())
        (chart / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": version, "appVersion": version, "kubeVersion": ">=1.20.0-0"}))
        budgets = chart / "templates/disruption.yaml"
        text = budgets.read_text()
        self.assertIn("apiVersion: policy/v1\n", text)
        budgets.write_text(text.replace("apiVersion: policy/v1\n", "apiVersion: policy/v1beta1\n"))
        return chart

    def prepare(self):
        """Creates the prerequisites of docs/kubernetes.md: a namespace, a database with its
        secret, and two volumes."""
        self.kubectl("create", "namespace", NAMESPACE)
        until("the namespace has its account", lambda: "default" in self.kubectl("-n", NAMESPACE, "get", "serviceaccounts"))
        url = self.postgres.url
        secret = {
            "owner-url": url("owner"), "api-url": url("muster_api"), "scheduler-url": url("muster_scheduler"), "api-password": "muster_api",
            "scheduler-password": "muster_scheduler",
        }
        self.kubectl("-n", NAMESPACE, "create", "secret", "generic", "muster-postgres", *(f"--from-literal={key}={value}" for key, value in secret.items()))
        folders = self.node.root / "host/shared"
        folders.mkdir(parents=True)
        (folders / "datasets").symlink_to(pathlib.Path(os.environ["MUSTER_DATASETS"]).resolve())
        (folders / "checkpoints").mkdir()
        os.chown(folders / "checkpoints", 10001, 10001)
        for name in ("checkpoints", "datasets"):
            self.apply(f"""
apiVersion: v1
kind: PersistentVolume
metadata: {{ name: {name} }}
spec:
  capacity: {{ storage: 500Gi }}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  claimRef: {{ namespace: {NAMESPACE}, name: muster-{name} }}
  hostPath: {{ path: /shared/{name} }}
""")

    def apply(self, text):
        # This old server does not know CEL, which the definitions contain.
        self.kubectl("apply", "--validate=false", "-f", "-", input=text)

    def helm(self, *arguments, wait="--wait"):
        began = time.monotonic()
        ran = self.cluster.helm(*arguments, "--namespace", NAMESPACE, wait, "--timeout", "150s")
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        print(f"helm {arguments[0]} came back after {time.monotonic() - began:.1f} s")
        return ran.stdout

    def release(self, verb, version, wait="--wait", **values):
        file = self.root / "values.yaml"
        file.write_text(yaml.safe_dump({**VALUES, **values}))
        # The server-side apply of this server requires a protocol for every port, which newer
        # servers fill in.
        return self.helm(verb, "muster", self.charts[version], "--values", file, "--server-side=false", wait=wait)

    def pods(self, component):
        """Returns the pods that are not terminating, by uid."""
        items = json.loads(self.kubectl("-n", NAMESPACE, "get", "pods", "-l", f"app.kubernetes.io/component={component}", "-o", "json"))["items"]
        return {item["metadata"]["uid"]: item for item in items if "deletionTimestamp" not in item["metadata"]}

    def images(self, component):
        return {container["image"] for pod in self.pods(component).values() for container in pod["spec"]["containers"]}

    def runs(self, component, *command):
        """Runs a command like `kubectl exec deploy/...`, which would need a kubelet."""
        pod = self.node.pods[next(iter(self.pods(component)))]
        ran = pod.container.run(command, 60)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout

    def muster(self, *arguments, of=("--as-tenant", "vision")):
        address = self.kubectl("-n", NAMESPACE, "get", "service", "muster-api", "-o", "jsonpath={.spec.clusterIP}")
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), "MUSTER_SERVER": f"http://{address}", "MUSTER_TOKEN": self.token}
        ran = subprocess.run([programs_in("MUSTER_PROGRAMS") / "muster", "-o", "json", *of, *arguments], env=environment, capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return json.loads(ran.stdout) if arguments[0] != "events" else [json.loads(line) for line in ran.stdout.splitlines()]

    def status(self, name):
        return json.loads(self.kubectl("-n", "vision", "get", "mj", name, "-o", "json")).get("status", {})

    def job(self):
        return self.muster("show", self.status("long")["jobId"])

    def step(self):
        return (self.job().get("progress") or {}).get("step", 0)

    def trained(self):
        """Waits until the long job has advanced by some steps."""
        until("the job is submitted", lambda: "jobId" in self.status("long"))
        further = self.step() + 40
        until(f"step {further}", lambda: self.step() >= further, 120)

    def tasks(self):
        """Returns the ids of the training's processes on this machine."""
        (pod,) = self.pods("executor")
        inside = os.stat(f"/proc/{self.node.pods[pod].container.first()}/ns/pid").st_ino
        found = set()
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.stat(process / "ns/pid").st_ino == inside and b"muster-task" in (process / "cmdline").read_bytes().split(b"\0")[0]:
                    found.add(process.name)
        return found

    @contextlib.contextmanager
    def rest_answers(self):
        """Checks that REST answers during the whole block."""
        address = self.kubectl("-n", NAMESPACE, "get", "service", "muster-api", "-o", "jsonpath={.spec.clusterIP}")
        answers, over = [], threading.Event()

        def ask():
            while not over.wait(0.1):
                ran = subprocess.run(["curl", "--silent", "--max-time", "5", "--output", "/dev/null", "--write-out", "%{http_code}", f"http://{address}/readyz"], capture_output=True, text=True)
                answers.append(ran.stdout)

        thread = threading.Thread(target=ask)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        self.assertGreater(len(answers), 10)
        self.assertEqual(set(answers), {"200"})

    @contextlib.contextmanager
    def training_notices_nothing(self):
        """Checks that the job continues with the same processes, tasks and executor."""
        def seen():
            job = self.job()
            return set(self.pods("executor")), self.tasks(), job["revision"], job["failures"], job["phase"]

        before = seen()
        self.assertEqual((len(before[1]), before[3], before[4]), (2, 0, "running"))
        with self.rest_answers():
            yield
        self.trained()
        self.assertEqual(seen(), before)

    def not_restarted(self):
        for pod in self.node.pods.values():
            self.assertEqual(pod.restarts, 0, f"{pod.name}: {pod.last_words()}")

    def objects(self):
        """Returns the names of all objects in the namespace except those of Kubernetes, and the
        release's objects outside of it."""
        kinds = "deployments,daemonsets,statefulsets,replicasets,jobs,pods,services,configmaps,secrets,serviceaccounts,roles,rolebindings,pvc,pdb,netpol,ingresses"
        names = self.kubectl("-n", NAMESPACE, "get", kinds, "-o", "name").split()
        names += self.kubectl("get", "clusterroles,clusterrolebindings,priorityclasses,crds", "-l", "app.kubernetes.io/part-of=muster", "-o", "name").split()
        return {re.sub(r"\.[a-z0-9.]+/", "/", name) for name in names if not re.search(r"/default(-token-.*)?$|/kube-root-ca.crt$", name)}

    def test_helm_installs_upgrades_rolls_back_and_uninstalls(self):
        try:
            self.tell()
        except Exception:
            print(self.cluster.run(HELM.parent / "kubectl", "get", "pods,jobs,pvc,mj", "--all-namespaces").stdout)
            print(self.cluster.run(HELM.parent / "kubectl", "describe", "mj", "-n", "vision").stdout)
            for pod in self.node.pods.values():
                print(f"{pod.name} {pod.said}: {pod.last_words()}")
            raise

    def tell(self):
        notes = self.release("install", FIRST)
        self.assertIn("muster-api bootstrap", notes)
        # No daemon started before its requirements: the hook's job ended first.
        self.not_restarted()
        self.assertEqual(self.pods("migrate"), {})
        self.assertEqual([len(self.pods(component)) for component in ("api", "scheduler", "executor")], [2, 2, 1])
        self.token = self.runs("api", "muster-api", "bootstrap").strip()
        (node,) = self.muster("nodes", of=())
        self.assertEqual((node["name"], node["capacity"]["cpu_milli"], node["capacity"]["memory_bytes"]), ("node-1-example-com", 2000, 2 << 30))
        first = {component: set(self.pods(component)) for component in ("api", "scheduler", "executor")}

        operators = self.runs("api", "muster-api", "bootstrap", "--token-name", "operator").strip()
        self.kubectl("-n", NAMESPACE, "create", "secret", "generic", "muster-operator-token", f"--from-literal=token={operators}")
        self.release("upgrade", FIRST, operator={"enabled": True})
        # Pods that the values do not affect remain.
        self.assertEqual({component: set(self.pods(component)) for component in first}, first)
        self.apply("{apiVersion: v1, kind: Namespace, metadata: {name: vision}}")
        self.apply("{apiVersion: muster.dev/v1alpha1, kind: Tenant, metadata: {name: vision}, spec: {quota: {gpus: 2}}}")
        self.apply(JOB.replace("NAME", "long").replace("STEPS", "1000000"))
        self.trained()

        with self.training_notices_nothing():
            # As in docs/kubernetes.md: otherwise helm 4 waits for executors that are not replaced.
            self.release("upgrade", NEXT, wait="--wait=legacy", operator={"enabled": True}, api={"replicas": 3})
        self.assertEqual(len(self.pods("api")), 3)
        if "MUSTER_CHART_BEFORE" in os.environ:
            # The previous version refuses a newer schema, so there was something to migrate.
            owner = {"MUSTER_API_OWNER_DATABASE_URL": self.postgres.url("owner")}
            ran = subprocess.run([self.node.programs[FIRST] / "muster-api", "migrate"], env=owner, capture_output=True, timeout=60)
            self.assertNotEqual(ran.returncode, 0)
        for component in ("api", "scheduler", "operator"):
            self.assertEqual(self.images(component), {f"muster-control-plane:{NEXT}"})
        self.assertEqual(self.images("executor"), {f"muster-executor-cpu:{FIRST}"})
        with self.training_notices_nothing():
            self.helm("rollback", "muster", "2", "--server-side=false")
        self.assertEqual(self.images("api") | self.images("scheduler"), {f"muster-control-plane:{FIRST}"})

        # A deleted executor pod is replaced, and the job resumes from the checkpoint of its stop.
        self.kubectl("-n", NAMESPACE, "delete", "pod", "-l", "app.kubernetes.io/component=executor")
        self.trained()
        events = [entry["event"] for entry in self.muster("events", self.status("long")["jobId"])]
        (resumed,) = (event["from_step"] for event in events if event["kind"] == "resumed")
        self.assertIn(f"stopped in order at step {resumed}", json.dumps(events))
        self.kubectl("-n", "vision", "delete", "mj", "long")
        self.apply(JOB.replace("NAME", "short").replace("STEPS", "60"))
        self.kubectl("-n", "vision", "wait", "--for=condition=Finished", "--timeout=50s", "mj/short")
        self.assertEqual(self.status("short")["phase"], "Succeeded")
        self.kubectl("-n", "vision", "delete", "mj", "short")
        self.assertEqual(sorted(job["phase"] for job in self.muster("list")["items"]), ["cancelled", "succeeded"])
        self.not_restarted()

        self.helm("uninstall", "muster")
        until("the last pod is gone", lambda: not any("pod/" in name for name in self.objects()))
        # docs/kubernetes.md: the definitions, volumes with users' work, and their requirements. The
        # two secrets belong to this test.
        self.assertEqual(self.objects(), {
            "customresourcedefinition/trainingjobs.muster.dev", "customresourcedefinition/studies.muster.dev",
            "customresourcedefinition/tenants.muster.dev", "persistentvolumeclaim/muster-checkpoints", "persistentvolumeclaim/muster-datasets",
            "secret/muster-join", "secret/muster-secret-keys", "secret/muster-postgres", "secret/muster-operator-token",
        })
        self.assertTrue(list((self.node.root / "host/shared/checkpoints").iterdir()))
