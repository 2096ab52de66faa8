"""A control plane of Kubernetes as processes: etcd, the API server and the controller manager, with
TLS, tokens of service accounts and RBAC. Needs the programs in MUSTER_KUBERNETES, and the network
namespace of scripts/test-chart, because ports are fixed.
"""

import http.client
import json
import os
import pathlib
import ssl
import subprocess
import threading
import time

from chart import HELM
from kubelet import until

# Address of the node in the network of its pods, and the networks.
HOST, PODS, SERVICES = "10.244.0.1", "10.244.0.0/16", "10.96.0.0/16"
PORT = 6443
TOKEN = "of-these-tests"
PATCH = "application/merge-patch+json"


class Refused(Exception):
    def __init__(self, status, words):
        super().__init__(f"{status}: {words}")
        self.status = status


class Api:
    """Client of the API server with all rights, such as a kubelet."""

    def __init__(self, authority):
        self.tls = ssl.create_default_context(cafile=authority)

    def connect(self, method, path, body=None, kind="application/json", timeout=30):
        client = http.client.HTTPSConnection(HOST, PORT, context=self.tls, timeout=timeout)
        client.request(method, path, json.dumps(body) if body is not None else None, {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind})
        return client.getresponse()

    def ask(self, method, path, body=None, kind="application/json"):
        """Sends a request and returns the answer. Raises `Refused` if the server refuses it."""
        with self.connect(method, path, body, kind) as response:
            answer = json.loads(response.read())
        if response.status >= 400:
            raise Refused(response.status, answer.get("message"))
        return answer

    def get(self, path):
        return self.ask("GET", path)

    def items(self, path):
        return self.get(path)["items"]

    def follow(self, path, tell):
        """Calls `tell(event, object)` for all objects and their changes, on a separate thread that
        never ends. An object may be passed twice."""
        threading.Thread(target=self.followed, args=(path, tell), daemon=True).start()

    def followed(self, path, tell):
        while True:
            try:
                listed = self.get(path)
                for item in listed["items"]:
                    tell("ADDED", item)
                version = listed["metadata"]["resourceVersion"]
                with self.connect("GET", f"{path}?watch=1&resourceVersion={version}", timeout=None) as response:
                    for line in response:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            break
                        tell(event["type"], event["object"])
            except (OSError, http.client.HTTPException, Refused, ValueError):
                time.sleep(0.2)


class Cluster:
    def __init__(self, root):
        self.programs = pathlib.Path(os.environ["MUSTER_KUBERNETES"]).resolve()
        self.root = pathlib.Path(root, "kubernetes")
        self.running = []
        (self.root / "keys").mkdir(parents=True)
        key = self.root / "keys/accounts.key"
        subprocess.run(["openssl", "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", key], check=True, capture_output=True)
        (self.root / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        clients, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        self.start("etcd", "--data-dir", self.root / "etcd", "--listen-client-urls", clients, "--advertise-client-urls", clients,
                   "--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}")
        self.start("kube-apiserver", f"--etcd-servers={clients}", f"--bind-address={HOST}", f"--advertise-address={HOST}", f"--secure-port={PORT}",
                   f"--service-cluster-ip-range={SERVICES}", "--authorization-mode=RBAC", f"--token-auth-file={self.root / 'tokens.csv'}",
                   "--service-account-issuer=https://kubernetes.default.svc", f"--service-account-key-file={key}",
                   f"--service-account-signing-key-file={key}", f"--cert-dir={self.root / 'keys'}")
        # The server signs its certificate itself and appends the authority.
        authority = self.root / "keys/apiserver.crt"
        until("the API server has a certificate", lambda: (self.root / "keys/apiserver.key").is_file() and authority.is_file())
        self.config = self.root / "kubeconfig"
        self.config.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": f"https://{HOST}:{PORT}", "certificate-authority": str(authority)}}],
            "users": [{"name": "me", "user": {"token": TOKEN}}],
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
        }))
        self.api = Api(authority)
        until("the API server is ready", self.is_ready)
        self.start("kube-controller-manager", f"--kubeconfig={self.config}", "--leader-elect=false", "--bind-address=127.0.0.1", "--port=0",
                   f"--cert-dir={self.root / 'keys'}", f"--service-account-private-key-file={key}", f"--root-ca-file={authority}")

    def start(self, name, *arguments):
        with open(self.root / f"{name}.log", "wb") as log:
            self.running.append(subprocess.Popen([self.programs / name, *arguments], cwd=self.root, stdout=log, stderr=log))

    def is_ready(self):
        try:
            with self.api.connect("GET", "/readyz") as response:
                return response.status == 200
        except OSError:
            return False

    def stop(self):
        for process in reversed(self.running):
            process.kill()
            process.wait(10)

    def run(self, program, *arguments, input=None, timeout=60):
        environment = {"PATH": os.environ["PATH"], "HOME": str(self.root), "KUBECONFIG": str(self.config)}
        return subprocess.run([program, *map(str, arguments)], env=environment, input=input, capture_output=True, text=True, timeout=timeout)

    def kubectl(self, *arguments, input=None):
        """Runs kubectl and returns its output."""
        ran = self.run(HELM.parent / "kubectl", *arguments, input=input)
        assert ran.returncode == 0, f"kubectl {arguments}: {ran.stderr}"
        return ran.stdout

    def helm(self, *arguments):
        """Runs helm like a user, but without server-side apply, its default since version 4. The
        apply of this old server requires a protocol for every port, which newer servers fill in."""
        return self.run(HELM, *arguments, timeout=300)
