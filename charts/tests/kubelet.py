"""Fake kubelet: runs the rendered containers as processes of this machine, each in its own process
namespace, so that all its processes end with the container. Volumes are folders; every path of a
mount is replaced by its folder, and addresses are replaced by loopback addresses. Users, limits and
networks are not applied.
"""

import http.client
import os
import pathlib
import random
import re
import signal
import socket
import subprocess
import threading
import time

from chart import pods


def free_port():
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        return held.getsockname()[1]


def until(what, is_so, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := is_so():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


class Service:
    """Forwards connections of one address to any pod that accepts them, like kube-proxy to ready
    pods."""

    def __init__(self, address=("127.0.0.1", 0)):
        self.listener = socket.create_server(address, backlog=128)
        self.port = self.listener.getsockname()[1]
        # Addresses of the pods.
        self.backends = []
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            for backend in random.sample(self.backends, len(self.backends)):
                try:
                    server = socket.create_connection(backend, 1)
                    server.settimeout(None)
                except OSError:
                    continue
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self.carry, args=pair, daemon=True).start()
                break
            else:
                client.close()

    def close(self):
        """Accepts no new connections; open ones continue."""
        # A close alone would not wake the thread in `accept`.
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    @staticmethod
    def carry(source, sink):
        """Copies data until one end closes, and then closes both."""
        try:
            while data := source.recv(1 << 16):
                sink.sendall(data)
        except OSError:
            pass
        for end in (source, sink):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Machine:
    """One node: its folders and the cluster's objects."""

    def __init__(self, root, items, secrets, programs, ports):
        self.root, self.items, self.secrets, self.programs, self.ports = pathlib.Path(root), items, secrets, programs, ports
        self.count = 0
        self.running = []

    def pod(self, kind, name):
        return next(spec for item, _, spec in pods(self.items) if item["kind"] == kind and item["metadata"]["name"] == name)

    def start(self, kind, name, ports=()):
        """Starts a pod. `ports` maps addresses for this pod only."""
        self.count += 1
        pod = Pod(self, self.pod(kind, name), self.root / f"pod-{self.count}-{name}", {**self.ports, **dict(ports)})
        self.running.append(pod)
        return pod

    def folder(self, volume, own):
        """Returns the folder of a volume. Claims and folders of the node outlive the pod; others do
        not."""
        if claim := volume.get("persistentVolumeClaim"):
            folder = self.root / "claims" / claim["claimName"]
        elif host := volume.get("hostPath"):
            folder = self.root / "host" / host["path"].lstrip("/")
        else:
            folder = own / volume["name"]
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def stop(self):
        for pod in self.running:
            pod.kill()


class Pod:
    """A pod of one container."""

    def __init__(self, machine, spec, own, ports):
        own.mkdir()
        self.machine, self.spec, self.own, self.ports = machine, spec, own, ports
        (self.container,) = spec["containers"]
        volumes = {volume["name"]: machine.folder(volume, own) for volume in spec.get("volumes", [])}
        self.replaced = {mount["mountPath"]: str(volumes[mount["name"]]) for mount in self.container.get("volumeMounts", [])}
        self.replaced |= {address: f"127.0.0.1:{port}" for address, port in ports.items()}
        variables = {variable["name"]: self.value(variable) for variable in self.container["env"]}
        self.environment = {"PATH": f"{machine.programs}:{os.environ['PATH']}", **variables}
        self.log = own / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(self.inside(self.container["command"]), env=self.environment, cwd=own, stdout=log, stderr=log)

    def inside(self, command):
        """Runs as process 1 of a namespace, so that the kernel kills all others with it."""
        as_user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *as_user, "--pid", "--fork", "--mount-proc", "--kill-child", *map(self.here, command)]

    def here(self, text):
        """Replaces paths in one pass, because replacements may contain other paths."""
        return re.sub("|".join(map(re.escape, self.replaced)), lambda found: self.replaced[found[0]], text)

    def value(self, variable):
        source = variable.get("valueFrom", {})
        if "secretKeyRef" in source:
            return self.machine.secrets[source["secretKeyRef"]["name"]][source["secretKeyRef"]["key"]]
        if "fieldRef" in source:
            return {"spec.nodeName": "node-1.example.com", "status.podIP": "127.0.0.1"}[source["fieldRef"]["fieldPath"]]
        if "resourceFieldRef" in source:
            amount = self.container["resources"]["requests"][source["resourceFieldRef"]["resource"].removeprefix("requests.")]
            return str(2 << 30) if amount == "2Gi" else str(int(amount) * 1000)
        return self.here(variable["value"])

    def run(self, *command):
        """Runs a command like `kubectl exec`, but outside of the namespace."""
        return subprocess.run([*map(self.here, command)], env=self.environment, capture_output=True, text=True, timeout=60)

    def is_ready(self):
        probe = self.container["readinessProbe"]
        if self.process.poll() is not None:
            raise AssertionError(f"ended with {self.process.returncode}: {self.log.read_text()}")
        if "exec" in probe:
            return self.run(*probe["exec"]["command"]).returncode == 0
        port = next(port["containerPort"] for port in self.container["ports"] if port["name"] == (probe.get("httpGet") or probe["tcpSocket"])["port"])
        try:
            with socket.create_connection(("127.0.0.1", self.ports[f"0.0.0.0:{port}"]), 1) as connection:
                if "tcpSocket" in probe:
                    return True
                address = connection.getpeername()
            client = http.client.HTTPConnection(*address, timeout=5)
            client.request("GET", probe["httpGet"]["path"])
            return client.getresponse().status == 200
        except OSError:
            return False

    def signal(self, number):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            os.kill(int(child), number)

    def delete(self):
        """Sends SIGTERM, and SIGKILL after the pod's grace period. Returns the duration in
        seconds."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        try:
            self.process.wait(self.spec["terminationGracePeriodSeconds"])
        except subprocess.TimeoutExpired:
            self.kill()
        return time.monotonic() - began

    def kill(self):
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait(10)
