"""The life of a real Pod on the node of node.py: containers in order, probes, restarts and end. Its
status is reported to the API server, where Deployments, Jobs, Services and `helm --wait` read it.
"""

import base64
import datetime
import http.client
import shutil
import signal
import socket
import subprocess
import threading
import time

from cluster import HOST, PATCH, Refused
from container import Container, Waits

STEP = 0.1


def stamp():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Probe:
    """A probe of a container, with its own interval. `holds` is None until it has a result."""

    def __init__(self, spec, is_for_life):
        self.spec, self.is_for_life = spec, is_for_life
        self.next = time.monotonic() + spec.get("initialDelaySeconds", 0)
        self.failures, self.holds = 0, True if is_for_life else False

    def look(self, pod, container):
        if time.monotonic() < self.next:
            return
        self.next = time.monotonic() + self.spec.get("periodSeconds", 10)
        if self.asked(pod, container):
            self.failures, self.holds = 0, True
        else:
            self.failures += 1
            if self.failures >= self.spec.get("failureThreshold", 3):
                self.holds = False

    def asked(self, pod, container):
        timeout = self.spec.get("timeoutSeconds", 1)
        if "exec" in self.spec:
            ran = container.run(self.spec["exec"]["command"], timeout)
            return ran is not None and ran.returncode == 0
        kind = "httpGet" if "httpGet" in self.spec else "tcpSocket"
        port = self.spec[kind]["port"]
        ports = {one["name"]: one["containerPort"] for one in container.spec["ports"]}
        try:
            if kind == "tcpSocket":
                socket.create_connection((pod.address, ports.get(port, port)), timeout).close()
                return True
            client = http.client.HTTPConnection(pod.address, ports.get(port, port), timeout=timeout)
            client.request("GET", self.spec["httpGet"]["path"])
            return 200 <= client.getresponse().status < 400
        except (OSError, http.client.HTTPException):
            return False


class Pod:
    def __init__(self, node, item):
        self.node, self.item, self.spec = node, item, item["spec"]
        self.namespace, self.name, self.uid = (item["metadata"][key] for key in ("namespace", "name", "uid"))
        self.at = f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"
        self.own = node.root / self.uid
        self.log = node.root / f"{self.name}.log"
        self.network = self.address = self.container = None
        self.restarts, self.since, self.said = 0, stamp(), None
        self.end = threading.Event()
        self.grace = None
        self.thread = threading.Thread(target=self.live, daemon=True)
        self.thread.start()

    def told_to_end(self, grace):
        self.grace = grace
        self.end.set()

    def live(self):
        self.own.mkdir()
        try:
            self.network, self.address = self.node.network(self.uid)
            phase = self.run_all()
            if not self.end.is_set():
                self.say(phase, {"terminated": {"exitCode": self.container.code(), "reason": "Completed" if phase == "Succeeded" else "Error"}}, False)
                self.end.wait()
        finally:
            if self.network:
                self.node.drop(self.network)
            shutil.rmtree(self.own, ignore_errors=True)
        try:
            self.node.api.ask("DELETE", self.at, {"gracePeriodSeconds": 0, "preconditions": {"uid": self.uid}})
        except Refused:
            pass

    def run_all(self):
        """Runs all containers and returns the final phase."""
        for spec in self.spec.get("initContainers", []):
            while not self.end.is_set():
                if self.once(spec, []) == 0:
                    break
                self.restarts += 1
                self.end.wait(2 ** min(self.restarts, 6))
        while not self.end.is_set():
            (spec,) = self.spec["containers"]
            probes = [Probe(spec[kind], kind == "livenessProbe") for kind in ("livenessProbe", "readinessProbe") if kind in spec]
            code = self.once(spec, probes)
            if self.spec["restartPolicy"] == "Never":
                return "Succeeded" if code == 0 else "Failed"
            if not self.end.is_set():
                print(f"{self.name} ended with {code}:\n{self.last_words()}")
                self.say("Running", {"waiting": {"reason": "CrashLoopBackOff"}}, False)
                # Back-off of a kubelet: none, then ten seconds, doubled each time.
                self.end.wait(10 * 2 ** (self.restarts - 1) if self.restarts else 0)
                self.restarts += 1
        return "Failed"

    def once(self, spec, probes):
        """Runs a container to its end and returns its code."""
        while not self.end.is_set():
            try:
                self.container = container = Container(self, spec, self.log)
                break
            except Waits as waits:
                self.say("Pending", {"waiting": {"reason": waits.reason, "message": str(waits)}}, False)
                self.end.wait(1)
        else:
            return None
        is_main = spec in self.spec["containers"]
        while container.code() is None and not self.end.is_set():
            for probe in probes:
                probe.look(self, container)
            if is_main:
                self.say("Running", {"running": {}}, all(probe.holds for probe in probes if not probe.is_for_life))
            if not all(probe.holds for probe in probes if probe.is_for_life):
                print(f"{self.name} is not alive")
                self.stop(container, self.spec["terminationGracePeriodSeconds"])
            self.end.wait(STEP)
        if container.code() is None:
            self.stop(container, self.grace)
        return container.code()

    def stop(self, container, grace):
        """Runs the preStop hook, sends SIGTERM, and SIGKILL after the grace period."""
        over = time.monotonic() + grace
        before = container.spec.get("lifecycle", {}).get("preStop")
        if before and grace:
            container.run(before["exec"]["command"], grace)
        container.signal(signal.SIGTERM)
        try:
            container.process.wait(max(0, over - time.monotonic()))
        except subprocess.TimeoutExpired:
            if grace:
                print(f"{self.name} is killed after its grace of {grace} s")
            container.kill()

    def say(self, phase, state, ready):
        """Reports the status if it has changed."""
        saying = (phase, str(state), ready, self.restarts)
        if saying == self.said:
            return
        self.said = saying
        has_begun = phase != "Pending"
        conditions = {"PodScheduled": True, "Initialized": has_begun, "ContainersReady": ready, "Ready": ready}
        state = {kind: {**of, "startedAt": stamp()} if kind == "running" else of for kind, of in state.items()}
        status = {
            "phase": phase, "podIP": self.address, "podIPs": [{"ip": self.address}], "hostIP": HOST, "startTime": self.since,
            "conditions": [{"type": kind, "status": str(holds), "lastTransitionTime": stamp()} for kind, holds in conditions.items()],
            "containerStatuses": [{
                "name": spec["name"], "image": spec["image"], "imageID": "", "ready": ready, "started": has_begun, "restartCount": self.restarts, "state": state,
            } for spec in self.spec["containers"]],
        }
        try:
            self.node.api.ask("PATCH", f"{self.at}/status", {"status": status}, PATCH)
        except Refused as refused:
            if refused.status != 404:
                raise

    def last_words(self):
        return self.log.read_text()[-2000:] if self.log.exists() else ""

    def read(self, kind, name):
        """Returns the data of a secret or config map."""
        try:
            return self.node.api.get(f"/api/v1/namespaces/{self.namespace}/{kind}/{name}").get("data", {})
        except Refused as refused:
            raise Waits("CreateContainerConfigError" if kind == "secrets" else "ContainerCreating", str(refused)) from refused

    def volume(self, name):
        """Returns the folder of a volume."""
        volume = next(volume for volume in self.spec["volumes"] if volume["name"] == name)
        if host := volume.get("hostPath"):
            return self.host(host["path"], host.get("type") == "DirectoryOrCreate")
        if claim := volume.get("persistentVolumeClaim"):
            bound = self.node.api.get(f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{claim['claimName']}")["spec"].get("volumeName")
            if not bound:
                raise Waits("ContainerCreating", f"{claim['claimName']} is not bound")
            return self.host(self.node.api.get(f"/api/v1/persistentvolumes/{bound}")["spec"]["hostPath"]["path"], False)
        folder = self.own / name
        if not folder.exists():
            files = self.files(volume)
            folder.mkdir()
            # Writable for every user, in place of the pod's group.
            folder.chmod(0o777)
            for path, content in files.items():
                (folder / path).write_bytes(content)
        return folder

    def files(self, volume):
        if "emptyDir" in volume:
            return {}
        kind = "secrets" if "secret" in volume else "configmaps"
        of = volume.get("secret") or volume["configMap"]
        data = self.read(kind, of.get("secretName") or of["name"])
        paths = {one["key"]: one["path"] for one in of["items"]} if "items" in of else {key: key for key in data}
        if missing := set(paths) - set(data):
            raise Waits("ContainerCreating", f"references non-existent secret key: {missing}")
        return {path: base64.b64decode(data[key]) if kind == "secrets" else data[key].encode() for key, path in paths.items()}

    def host(self, path, makes):
        """Returns a folder of the node, which is separate from those of this machine."""
        folder = self.node.root / "host" / path.lstrip("/")
        if makes and not folder.exists():
            folder.mkdir(parents=True, mode=0o755)
        if not folder.exists():
            raise Waits("ContainerCreating", f"hostPath type check failed: {path} is not a directory")
        return folder
