"""Fake node: does the work of Kubernetes' scheduler, kubelet and kube-proxy for real Pods and
Services of a real API server. Each pod has a network namespace with its own address. Each container
has namespaces for processes and mounts, a read-only root file system, its user and capabilities,
variables, secrets, volumes and probes. Services have their addresses. So no part of a pod is
replaced.

Differences from a real node: an image consists of the files that docker/Dockerfile copies, on this
machine's /usr. Names of services come from a hosts file instead of DNS. Network policies, limits
and seccomp have no effect. Every request fits on the node.
"""

import datetime
import pathlib
import re
import subprocess
import threading
import time

from chart import ROOT
from cluster import HOST, PATCH, PODS, SERVICES, Refused
from container import Waits
from kubelet import Service
from pod import Pod

NAME = "node-1.example.com"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


def now():
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ip(*commands, network=None):
    inside = ["nsenter", f"--net={network}"] if network else []
    subprocess.run([*inside, "ip", "-batch", "-"], input="\n".join(commands), text=True, check=True, capture_output=True)


def images():
    """Returns the programs that docker/Dockerfile copies into each image."""
    found, stage = {}, None
    for line in (ROOT / "docker/Dockerfile").read_text().splitlines():
        if named := re.match(r"FROM .* AS ([a-z-]+)", line):
            stage = f"muster-{named[1]}"
        elif line.startswith("COPY --from=programs /programs/"):
            found[stage] = re.findall(r"/programs/([a-z-]+)", line)
    return found


class Node:
    """Created before the API server, because it creates the network; `join` follows after it."""

    def __init__(self, root, web):
        """`web` is the folder of the web page."""
        self.root, self.web = pathlib.Path(root, "node"), web
        (self.root / "networks").mkdir(parents=True)
        self.images, self.programs = images(), {}
        self.has_stopped = False
        self.pods, self.services, self.endpoints, self.proxies = {}, {}, {}, {}
        self.lock = threading.Lock()
        self.addresses = iter(f"10.244.{n // 250 + 1}.{n % 250 + 1}" for n in range(10_000))
        ip("link set lo up", "link add pods type bridge", f"addr add {HOST}/16 dev pods", "link set pods up", f"route add local {SERVICES} dev lo")

    def join(self, api):
        self.api = api
        api.ask("POST", "/api/v1/nodes", {"metadata": {"name": NAME, "labels": {"kubernetes.io/hostname": NAME}}})
        api.ask("POST", LEASE, {"metadata": {"name": NAME}, "spec": {"holderIdentity": NAME, "leaseDurationSeconds": 40, "renewTime": now()}})
        gives = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now()[:19] + "Z"}
        status = {"capacity": gives, "allocatable": gives, "conditions": [ready], "addresses": [{"type": "InternalIP", "address": HOST}]}
        api.ask("PATCH", f"/api/v1/nodes/{NAME}/status", {"status": status}, PATCH)
        threading.Thread(target=self.renew, daemon=True).start()
        api.follow("/api/v1/services", self.service)
        api.follow("/api/v1/endpoints", self.endpoint)
        api.follow("/api/v1/pods", self.pod)

    def stop(self):
        """Ends all pods at once, before the API server."""
        self.has_stopped = True
        pods = list(self.pods.values())
        for pod in pods:
            pod.told_to_end(0)
        for pod in pods:
            pod.thread.join(10)

    def renew(self):
        while True:
            time.sleep(5)
            try:
                self.api.ask("PATCH", f"{LEASE}/{NAME}", {"spec": {"renewTime": now()}}, PATCH)
            except (OSError, Refused):
                pass

    def pull(self, image):
        """Returns the folder of an image's programs, and their names."""
        name, _, tag = image.rpartition(":")
        if name not in self.images or tag not in self.programs:
            raise Waits("ErrImagePull", f"there is no image {image}")
        return self.programs[tag], self.images[name]

    def pod(self, event, item):
        uid = item["metadata"]["uid"]
        if event == "DELETED":
            # Deleted by force: its processes must end too.
            if uid in self.pods:
                self.pods[uid].told_to_end(0)
        elif not item["spec"].get("nodeName"):
            bound = {"metadata": {"name": item["metadata"]["name"]}, "target": {"kind": "Node", "name": NAME}}
            try:
                self.api.ask("POST", f"/api/v1/namespaces/{item['metadata']['namespace']}/pods/{item['metadata']['name']}/binding", bound)
            except Refused as refused:
                if refused.status not in (404, 409):
                    raise
        else:
            if uid not in self.pods and not self.has_stopped and item["status"].get("phase") not in ("Succeeded", "Failed"):
                self.pods[uid] = Pod(self, item)
            if "deletionTimestamp" in item["metadata"] and uid in self.pods:
                self.pods[uid].told_to_end(item["metadata"].get("deletionGracePeriodSeconds", 30))

    def network(self, uid):
        """Creates a network namespace for a pod. Returns its file and the pod's address."""
        file = self.root / "networks" / uid
        file.touch()
        subprocess.run(["unshare", f"--net={file}", "true"], check=True)
        with self.lock:
            address = next(self.addresses)
        ours = f"v{uid[:8]}"
        ip(f"link add {ours} type veth peer name eth0 netns {file}", f"link set {ours} master pods up")
        ip("link set lo up", f"addr add {address}/{PODS.split('/')[1]} dev eth0", "link set eth0 up", f"route add default via {HOST}", network=file)
        return file, address

    def drop(self, file):
        subprocess.run(["umount", file], check=True)
        file.unlink()

    def service(self, event, item):
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        with self.lock:
            self.services.pop(key, None)
            if event != "DELETED":
                self.services[key] = item["spec"]
            for namespace in {namespace for namespace, _ in [*self.services, key]}:
                self.write_hosts(namespace)
            self.connect(key)

    def endpoint(self, event, item):
        key = (item["metadata"]["namespace"], item["metadata"]["name"])
        with self.lock:
            self.endpoints[key] = item.get("subsets", []) if event != "DELETED" else []
            self.connect(key)

    def connect(self, key):
        """Forwards each port of a service to the ready pods."""
        wanted = {}
        spec = self.services.get(key, {"ports": []})
        for port in spec["ports"]:
            wanted[(spec["clusterIP"], port["port"])] = [
                (address["ip"], there["port"]) for subset in self.endpoints.get(key, []) for there in subset["ports"]
                if there.get("name") == port.get("name") for address in subset.get("addresses", [])
            ]
        mine = self.proxies.setdefault(key, {})
        for address in set(mine) - set(wanted):
            mine.pop(address).close()
        for address, backends in wanted.items():
            if address not in mine:
                mine[address] = Service(address)
            mine[address].backends = backends

    def hosts(self, namespace):
        file = self.root / f"hosts-{namespace}"
        with self.lock:
            if not file.exists():
                self.write_hosts(namespace)
        return file

    def write_hosts(self, namespace):
        """Writes the file in place, because pods have it mounted."""
        lines = ["127.0.0.1 localhost"]
        for (of, name), spec in self.services.items():
            if spec["clusterIP"] != "None":
                own = f" {name}" if of == namespace else ""
                lines.append(f"{spec['clusterIP']} {name}.{of}.svc.cluster.local {name}.{of}.svc {name}.{of}{own}")
        (self.root / f"hosts-{namespace}").write_text("\n".join(lines) + "\n")
