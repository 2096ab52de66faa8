"""A container like that of a kubelet: mounts, variables, user, and commands run in it."""

import base64
import os
import pathlib
import re
import signal
import subprocess

UNITS = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "m": 0.001, "": 1}
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Creates a root file system in memory with this machine's programs and libraries. Arguments: three
# per mount (options, source, target), then `--` and the mode of the root. CA certificates have the
# path of docker/Dockerfile.
MAKING = r"""
set -eu
root=$1; shift
mount -t tmpfs -o mode=755 image "$root"
cd "$root"
mkdir -p usr/local/bin usr/share dev etc proc root run srv var/lib var/run
mkdir -m 1777 tmp
for folder in bin sbin lib lib64; do ln -s usr/$folder $folder; done
for folder in usr/bin usr/sbin usr/lib usr/lib64; do mkdir -p $folder; mount --bind -o ro /$folder $folder; done
mkdir -p etc/ssl/certs
cp -L /etc/ssl/certs/ca-certificates.crt etc/ssl/certs
cp -r /etc/ld.so.cache /etc/nsswitch.conf /etc/passwd /etc/group /etc/alternatives etc
mount -t proc proc proc
mount -t tmpfs -o mode=755 devices dev
for device in null zero full random urandom; do : >dev/$device; mount --bind /dev/$device dev/$device; done
mkdir -m 1777 dev/shm
mount -t tmpfs -o size=64m shm dev/shm
while [ "$1" != -- ]; do
  if [ -d "$2" ]; then mkdir -p "./$3"; else mkdir -p "$(dirname "./$3")"; : >"./$3"; fi
  mount --bind -o "$1" "$2" "./$3"
  shift 3
done
shift
mount -o "remount,$1" "$root"
shift
exec "$@"
"""


class Waits(Exception):
    """A container cannot be created yet; with a reason and a message."""

    def __init__(self, reason, words):
        super().__init__(words)
        self.reason = reason


def amount(quantity, divisor="1"):
    def number(text):
        digits, unit = re.fullmatch(r"([0-9.]+)([A-Za-z]*)", str(text)).groups()
        return float(digits) * UNITS[unit]

    return str(int(-(-number(quantity) // number(divisor))))


def field(item, path):
    for part in path.split("."):
        item = item[part]
    return item


class Container:
    """One run of a container. Raises `Waits` if a requirement is not met yet."""

    def __init__(self, pod, spec, log):
        self.pod, self.spec = pod, spec
        folder, programs = pod.node.pull(spec["image"])
        environment = {"PATH": PATH, **self.variables()}
        mounts = [("ro", folder / name, f"usr/local/bin/{name}") for name in programs]
        mounts += [("ro", pod.node.hosts(pod.namespace), "etc/hosts")]
        if "muster-api" in programs:
            mounts.append(("ro", pod.node.web, "usr/share/muster/web"))
        # Mounts inside of other mounts come after them.
        for mount in sorted(spec.get("volumeMounts", []), key=lambda mount: mount["mountPath"]):
            mounts.append(("ro" if mount.get("readOnly") else "rw", pod.volume(mount["name"]), mount["mountPath"]))
        security = {**pod.spec.get("securityContext", {}), **spec.get("securityContext", {})}
        self.environment, self.user = environment, self.as_user(security)
        root = pod.own / "root"
        root.mkdir(exist_ok=True)
        words = [*spec.get("command", []), *spec.get("args", [])]
        command = [re.sub(r"\$\(([A-Z_]+)\)", lambda found: environment.get(found[1], found[0]), word) for word in words]
        with open(log, "ab") as file:
            self.process = subprocess.Popen([
                "nsenter", f"--net={pod.network}", "unshare", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-c", MAKING, "sh", root,
                *[str(part) for mount in mounts for part in mount], "--", "ro" if security.get("readOnlyRootFilesystem") else "rw",
                "chroot", root, *self.user, *command,
            ], env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=file)

    @staticmethod
    def as_user(security):
        """Returns the command prefix that sets user, groups and the added capabilities. No
        process can gain further ones."""
        assert security["capabilities"]["drop"] == ["ALL"] and security["allowPrivilegeEscalation"] is False, security
        user, group = security["runAsUser"], security["runAsGroup"]
        assert user != 0 or not security["runAsNonRoot"], "the kubelet refuses root here"
        powers = ",".join(["-all", *(f"+{power.lower()}" for power in security["capabilities"].get("add", []))])
        groups = f"--groups={security['fsGroup']}" if "fsGroup" in security else "--clear-groups"
        return ["setpriv", f"--reuid={user}", f"--regid={group}", groups, f"--bounding-set={powers}", "--inh-caps=-all", "--no-new-privs"]

    def variables(self):
        item = self.pod.item
        values = {"KUBERNETES_SERVICE_HOST": self.pod.node.services[("default", "kubernetes")]["clusterIP"], "KUBERNETES_SERVICE_PORT": "443"}
        for source in self.spec.get("envFrom", []):
            values |= {key: base64.b64decode(value).decode() for key, value in self.pod.read("secrets", source["secretRef"]["name"]).items()}
        for variable in self.spec.get("env", []):
            source = variable.get("valueFrom", {})
            if "secretKeyRef" in source:
                of = source["secretKeyRef"]
                found = self.pod.read("secrets", of["name"])
                if of["key"] not in found:
                    raise Waits("CreateContainerConfigError", f"couldn't find key {of['key']} in Secret {of['name']}")
                value = base64.b64decode(found[of["key"]]).decode()
            elif "fieldRef" in source:
                path = source["fieldRef"]["fieldPath"]
                value = self.pod.address if path == "status.podIP" else field(item, path)
            elif "resourceFieldRef" in source:
                of = source["resourceFieldRef"]
                value = amount(field(self.spec["resources"], of["resource"]), of.get("divisor", "1"))
            else:
                value = re.sub(r"\$\(([A-Z_]+)\)", lambda found: values.get(found[1], found[0]), variable.get("value", ""))
            values[variable["name"]] = value
        return values

    def first(self):
        """Returns the id of the namespace's process 1 in this namespace."""
        try:
            children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        except OSError:
            return None
        return int(children[0]) if children else None

    def run(self, command, timeout):
        """Runs a command like `kubectl exec` and exec probes. Returns None after the time limit,
        or if no process runs there."""
        first = self.first()
        if first is None:
            return None
        inside = ["nsenter", "--target", str(first), "--net", "--mount", "--pid", f"--root=/proc/{first}/root", "--wd=/", *self.user, *command]
        try:
            return subprocess.run(inside, env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return None

    def signal(self, number):
        first = self.first()
        if first is not None:
            try:
                os.kill(first, number)
            except ProcessLookupError:
                pass

    def kill(self):
        while self.process.poll() is None:
            self.signal(signal.SIGKILL)
            try:
                self.process.wait(0.1)
            except subprocess.TimeoutExpired:
                pass

    def code(self):
        """Returns the exit code; None while the container runs."""
        ended = self.process.poll()
        return ended if ended is None or ended >= 0 else 128 - ended
