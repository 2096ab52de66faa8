"""Checks the values: bad ones are refused by name, all are documented, and all settings for the
daemons exist there."""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

import yaml
from chart import CHART, ROOT, helm, objects, containers, pods, refused, render, render_case, MATRIX

POOL = {"gpus": "none", "cpuSlots": 1}
AS_PODS = {"runtime": "pod", "data": {"kind": "hostPath"}}
BY_IDENTITY = {"kind": "bucket", "bucket": {"url": "s3://training/checkpoints"}}

# Values -> required parts of the error: the place, and the expectation.
BAD = [
    ({"api": {"replicsa": 3}}, ["/api", "'replicsa' not allowed"]),
    ({"extra": 1}, ["'extra' not allowed"]),
    ({"api": {"replicas": 0}}, ["/api/replicas", "want 1"]),
    ({"api": {"replicas": "2"}}, ["/api/replicas", "want integer"]),
    ({"api": {"env": [{"name": "TZ", "value": 3}]}}, ["/api/env/0/value", "want string"]),
    ({"api": {"resources": {"requests": {"memory": "lots"}}}}, ["/api/resources/requests/memory", "lots"]),
    ({"api": {"resources": {"requests": {"cpu": None}}}}, ["/api/resources/requests", "'cpu'"]),
    ({"api": {"serviceAccount": {"nme": "x"}}}, ["/api/serviceAccount", "'nme'"]),
    ({"operator": {"enabled": True, "token": {"secret": ""}}}, ["/operator/token/secret"]),
    ({"operator": {"defaultTenant": "Research"}}, ["/operator/defaultTenant"]),
    ({"operator": {"namespaces": "vision"}}, ["/operator/namespaces", "want array"]),
    ({"operator": {"namespaces": ["Vision"]}}, ["/operator/namespaces/0"]),
    ({"operator": {"nodes": {"rackLabels": ["a b"]}}}, ["/operator/nodes/rackLabels/0"]),
    ({"networkPolicies": {"monitoringFrom": [{"cidr": "10.0.0.0/8"}]}}, ["/networkPolicies/monitoringFrom/0", "'cidr'"]),
    ({"executor": {"pools": {"cpu": {**POOL, "part": "1g.10gb"}}}}, ["/executor/pools/cpu/part"]),
    ({"executor": {"pools": {"a": POOL, "b": POOL}}}, ["executor.pools.a and executor.pools.b are for the same nodes", "expected a part"]),
    ({"executor": {"pools": {"a": {**POOL, "part": "x"}, "b": {**POOL, "part": "x"}}}}, ["executor.pools.a and executor.pools.b"]),
    ({"operator": {"nodes": {"foreignPods": "nvidia.com/gpu"}}}, ["/operator/nodes/foreignPods", "want boolean"]),
    ({"operator": {"enabled": True, "nodes": {"foreignResource": "nvidia.com/gpu"}}}, ["operator.nodes.foreignResource is nvidia.com/gpu", "expected operator.nodes.foreignPods: true"]),
    ({"operator": {"nodes": {"placeholders": {"most": 0}}}}, ["/operator/nodes/placeholders/most", "want 1"]),
    ({"operator": {"nodes": {"placeholders": {"priority": -10}}}}, ["/operator/nodes/placeholders", "'priority' not allowed"]),
    ({"operator": {"enabled": True, "nodes": {"enabled": False, "placeholders": {"enabled": True}}}}, ["operator.nodes.placeholders.enabled is true, but operator.nodes.enabled is false"]),
    ({"operator": {"enabled": True, "nodes": {"placeholders": {"enabled": True}}}, "executor": {"pools": {"gpu": {"gpus": "runtime", "runtimeClassName": "nvidia"}}}}, ["operator.nodes.placeholders.enabled", "expected one with gpus: devices or none"]),
    ({"operator": {"nodes": {"drain": True}}}, ["/operator/nodes", "'drain' not allowed"]),
    ({"executor": {"pools": {"gpu": {"gpus": "devices", "extendedResources": {"rdma": 1}}}}}, ["/executor/pools/gpu/extendedResources", "'rdma' not allowed"]),
    ({"executor": {"pools": {"gpu": {"gpus": "devices", "capabilities": ["SYS_ADMIN"]}}}}, ["/executor/pools/gpu/capabilities/0", "'IPC_LOCK'"]),
    ({"executor": {"sharedMemorySize": "lots"}}, ["/executor/sharedMemorySize", "lots"]),
    ({"executor": {**AS_PODS, "tasks": {"serviceAccount": "trainers"}}, "checkpoints": BY_IDENTITY}, ["executor.tasks.serviceAccount is trainers", "expected executor.tasks.engineServiceAccount"]),
    ({"executor": {**AS_PODS, "tasks": {"serviceAccount": "a", "engineServiceAccount": "a"}}}, ["executor.tasks.engineServiceAccount is a", "expected another"]),
    ({"executor": {"tasks": {"startMs": 10}}}, ["/executor/tasks/startMs", "want 1,000"]),
    ({"scheduler": {"policy": "best"}}, ["/scheduler/policy", "'tiresias'"]),
    ({"scheduler": {"leaseMs": 100}}, ["/scheduler/leaseMs", "want 500"]),
    ({"scheduler": {"heartbeatMs": 6000}}, ["scheduler.heartbeatMs is 6000", "scheduler.leaseMs, which is 10000"]),
    ({"scheduler": {"roundMinIntervalMs": 2000}}, ["scheduler.roundMinIntervalMs is 2000"]),
    ({"scheduler": {"minAvailable": 2}}, ["scheduler.minAvailable is 2", "scheduler.replicas, which is 2"]),
    ({"scheduler": {"graceMs": 60000}}, ["executor.terminationGracePeriodSeconds is 60", "60000"]),
    ({"security": {"runAsUser": 0}}, ["/security/runAsUser", "want 1"]),
    ({"images": {"controlPlane": {"tag": "latest"}}}, ["/images/controlPlane/tag"]),
    ({"images": {"controlPlane": {"digest": "abc"}}}, ["/images/controlPlane/digest", "sha256"]),
    ({"executor": {"pools": {"cpu": {**POOL, "image": {"tag": "1.2"}}}}}, ["/executor/pools/cpu/image", "'repository'"]),
    ({"executor": {"data": {"kind": "hostPath"}}, "security": {"runAsUser": None}}, ["executor.data.prepare is true", "security.runAsUser"]),
    ({"executor": {"runtime": "vm"}}, ["/executor/runtime", "'process', 'pod'"]),
    ({"executor": {"pools": {"gpu": {"resource": "nvidia.com/mig-1g.10gb"}}}}, ["executor.pools.gpu", "nvidia.com/mig-1g.10gb", "expected pod"]),
    ({"executor": {"runtime": "pod"}}, ["executor.data.kind is emptyDir", "expected hostPath"]),
    ({"images": {"registry": "https://mirror.example.com"}}, ["/images/registry"]),
    ({"images": {"pullPolicy": "Sometimes"}}, ["/images/pullPolicy", "'IfNotPresent'"]),
    ({"postgres": {"mode": "internal"}}, ["/postgres/mode", "'external', 'bundled'"]),
    ({"postgres": {"external": {"secret": ""}}}, ["/postgres/external/secret"]),
    ({"postgres": {"external": {"url": "postgres://x"}}}, ["/postgres/external", "'url' not allowed"]),
    ({"ingress": {"enabled": True}}, ["/ingress/host"]),
    ({"ingress": {"enabled": True, "host": "https://x.example.com/"}}, ["/ingress/host"]),
    ({"executor": {"updateStrategy": "Recreate"}}, ["/executor/updateStrategy", "'OnDelete', 'RollingUpdate'"]),
    ({"executor": {"schedulerUrl": "scheduler:7071"}}, ["/executor/schedulerUrl"]),
    ({"executor": {"schedulerCa": {"secret": "authority"}}}, ["executor.schedulerCa.secret is authority", "expected scheduler.tls.secret"]),
    ({"scheduler": {"tls": {"required": True}}}, ["scheduler.tls.required is true", "scheduler.tls.secret"]),
    ({"executor": {"data": {"kind": "pvc"}}}, ["/executor/data/kind", "'emptyDir', 'hostPath'"]),
    ({"executor": {"pools": {"gpu": {"gpus": "some"}}}}, ["/executor/pools/gpu/gpus", "'devices', 'runtime', 'none'"]),
    ({"executor": {"pools": {"gpu": {"gpus": "runtime"}}}}, ["/executor/pools/gpu/runtimeClassName"]),
    ({"executor": {"pools": {"cpu": {"gpus": "none"}}}}, ["/executor/pools/cpu", "'cpuSlots'"]),
    ({"executor": {"pools": {"CPU": POOL}}}, ["/executor/pools", "'CPU' not allowed"]),
    ({"executor": {"pools": {"cpu": {**POOL, "nodeSelector": {"gpu": True}}}}}, ["/executor/pools/cpu/nodeSelector/gpu", "want string"]),
    ({"executor": {"pools": {"cpu": {**POOL, "tolerations": [{"key": "x", "operator": "In"}]}}}}, ["/tolerations/0/operator", "'Exists'"]),
    ({"checkpoints": {"kind": "s3"}}, ["/checkpoints/kind", "'existingClaim'"]),
    ({"checkpoints": {"kind": "bucket"}}, ["/checkpoints/bucket/url"]),
    ({"checkpoints": {"kind": "bucket", "bucket": {"url": "s3://KEY:SECRET@bucket/x"}}}, ["/checkpoints/bucket/url"]),
    ({"datasets": {"kind": "bucket"}}, ["/datasets/kind"]),
    ({"checkpoints": {"kind": "existingClaim"}}, ["/checkpoints/existingClaim"]),
    ({"datasets": {"kind": "nfs", "nfs": {"server": "10.0.0.1"}}}, ["/datasets/nfs/path"]),
    ({"datasets": {"kind": "hostPath", "hostPath": "relative"}}, ["/datasets/hostPath"]),
    ({"commonLabels": {"app.kubernetes.io/name": "x"}}, ["/commonLabels/app.kubernetes.io~1name"]),
    ({"networkPolicies": {"apiFrom": [{"cidr": "10.0.0.0/8"}]}}, ["/networkPolicies/apiFrom/0", "'cidr'"]),
    ({"monitoring": {"serviceMonitor": {"interval": "often"}}}, ["/monitoring/serviceMonitor/interval"]),
]


def source(path):
    return (ROOT / path).read_text()


def keys(values, path=""):
    """Returns every path of a mapping, without free-form maps such as labels."""
    for key, value in values.items():
        at = f"{path}/{key}"
        yield at
        if isinstance(value, dict) and not re.search(r"(Labels|Annotations|annotations|labels|nodeSelector|requests|limits|affinity)$", at):
            yield from keys(value, at)


class Values(unittest.TestCase):
    def test_bad_values_are_refused_by_name(self):
        for values, said in BAD:
            with self.subTest(json.dumps(values)):
                message = refused(values)
                self.assertIsNotNone(message, "taken")
                for part in said:
                    self.assertIn(part, message)

    def test_schema_admits_no_unknown_value(self):
        def walk(schema, at):
            if "properties" in schema and "type" in schema or "patternProperties" in schema:
                self.assertIs(schema.get("additionalProperties"), False, at)
            for key, inner in schema.items():
                if isinstance(inner, dict) and key not in ("if", "then"):
                    walk(inner, f"{at}/{key}")

        schema = json.loads((CHART / "values.schema.json").read_text())
        walk(schema, "")
        self.assertGreater(len(schema["properties"]), 10)

    def test_values_and_schema_have_the_same_keys(self):
        schema = json.loads((CHART / "values.schema.json").read_text())

        def named(at, path=""):
            if "$ref" in at:
                at = {**schema["definitions"][at["$ref"].rsplit("/", 1)[1]], **at}
            for key, inner in at.get("properties", {}).items():
                yield f"{path}/{key}"
                yield from named(inner, f"{path}/{key}")
            if path == "/executor/pools":
                yield f"{path}/gpu"
                yield from named(*at["patternProperties"].values(), f"{path}/gpu")

        given = set(keys(yaml.safe_load((CHART / "values.yaml").read_text())))
        known = set(named(schema)) - {"/global"}
        self.assertEqual(given - known, set())
        # Kubernetes defines the parts of pods, so the values contain only an empty map.
        inner = re.compile(r"/(requests|limits|affinity)/|/image/(repository|tag|digest)$|/(resources|executorResources)/limits$")
        self.assertEqual({path for path in known - given if not inner.search(path)}, set())

    def test_variables_exist_in_the_daemons(self):
        daemons = {
            "MUSTER_API_": source("api/src/config.rs") + source("api/src/command/migrate.rs"),
            "MUSTER_SCHEDULER_": source("scheduler/src/config.rs") + source("api/src/command/migrate.rs"),
            "MUSTER_EXECUTOR_": source("executor/src/config.rs"),
            "MUSTER_OPERATOR_": source("api/operator/src/config.rs"),
            "MUSTER_LOG": source("api/operator/src/main.rs") + source("api/src/main.rs") + source("scheduler/src/main.rs") + source("executor/src/main.rs"),
        }
        seen = set()
        for name in MATRIX:
            for _, _, spec in pods(objects(render_case(name))):
                for variable in (variable for container in containers(spec) for variable in container.get("env", [])):
                    for prefix, text in daemons.items():
                        if variable["name"].startswith(prefix):
                            seen.add(variable["name"])
                            self.assertIn(f'"{variable["name"]}"', text)
        self.assertGreater(len(seen), 25)

    def test_policies_exist_in_the_scheduler(self):
        names = re.findall(r'Self::\w+ => "([a-z-]+)"', source("scheduler/core/src/policies/name.rs"))
        schema = json.loads((CHART / "values.schema.json").read_text())
        self.assertEqual(schema["properties"]["scheduler"]["properties"]["policy"]["enum"], names)

    def test_dashboards_show_what_the_daemons_export(self):
        monitored = render(arguments=["--set", "operator.enabled=true,monitoring.serviceMonitor.enabled=true,monitoring.dashboard.enabled=true"])
        probes = ("/healthz", "/readyz", "/metrics")
        for daemon, metrics, routes, paths in (
            ("api", "api/src/metrics/*.rs", "api/src/routes.rs", probes),
            ("scheduler", "scheduler/src/metrics.rs", "scheduler/src/health.rs", probes),
            ("executor", "executor/src/metrics.rs", "executor/src/metrics.rs", ("/metrics",)),
            ("operator", "api/operator/src/metrics/*.rs", "api/operator/src/server.rs", ("/metrics",)),
        ):
            text = (CHART / f"dashboards/{daemon}.json").read_text()
            title = json.loads(text)["title"]
            # In the sources metrics are whole strings. Identifiers may start with `muster_` too.
            sources = "".join(path.read_text() for path in sorted(ROOT.glob(metrics)))
            named = re.findall(r"\bmuster_[a-z_]+", text), re.findall(r'"(muster_[a-z_]+)"', sources)
            shown, exported = ({re.sub(r"_(bucket|count|sum)$", "", name) for name in names} for names in named)
            self.assertEqual(shown, exported)
            self.assertIn(title, monitored)
            for path in paths:
                self.assertIn(f'"{path}"', source(routes))
                self.assertIn(path, monitored)

    def test_probes_use_paths_of_the_daemons(self):
        items = objects(render())
        for daemon in ("api", "scheduler"):
            spec = next(spec for item, _, spec in pods(items) if item["metadata"]["name"] == f"muster-{daemon}")
            (container,) = spec["containers"]
            self.assertEqual(container["livenessProbe"]["httpGet"]["path"], "/healthz")
            self.assertEqual(container["readinessProbe"]["httpGet"]["path"], "/readyz")
            port = container["readinessProbe"]["httpGet"]["port"]
            number = next(one["containerPort"] for one in container["ports"] if one["name"] == port)
            listens = {variable["value"] for variable in container["env"] if variable["name"].endswith("LISTEN")}
            self.assertIn(f"0.0.0.0:{number}", listens)

    def test_images_contain_the_programs_of_the_chart(self):
        docker = source("docker/Dockerfile")
        for program in ("muster-api", "muster-scheduler", "muster-operator", "muster-executor", "muster-task"):
            self.assertIn(f"/programs/{program}", docker)
        self.assertIn(" /usr/share/muster/web\n", docker)
        self.assertIn("/usr/share/muster/web", render_case("default"))
        # Required to verify the certificate of a bucket.
        self.assertEqual(docker.count("/etc/ssl/certs/ca-certificates.crt\n"), 3)
        targets = set(re.findall(r" AS ([a-z-]+)", docker))
        for repository in ("muster-control-plane", "muster-executor", "muster-executor-cpu"):
            self.assertIn(repository.removeprefix("muster-"), targets)
        version = re.search(r'^version = "(.*)"', source("Cargo.toml"), re.M).group(1)
        self.assertEqual(yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"], version)

    def test_notes_contain_the_first_commands(self):
        ran = helm("install", "muster", CHART, "--dry-run=client", "--namespace", "training", "--set", "ingress.enabled=true,ingress.host=x.example.com")
        notes = ran.stdout.split("NOTES:")[1]
        self.assertIn("kubectl --namespace training exec deploy/muster-api -- muster-api bootstrap", notes)
        self.assertIn("muster login --server https://x.example.com && muster nodes", notes)
        self.assertIn("Bootstrap(Bootstrap)", source("api/src/main.rs"))

    def test_notes_warn_of_finalizers_with_operator(self):
        arguments = ("install", "muster", CHART, "--dry-run=client", "--namespace", "training")
        warning = "kubectl delete trainingjobs,studies --all --all-namespaces"
        self.assertNotIn(warning, helm(*arguments).stdout.split("NOTES:")[1])
        self.assertIn(warning, helm(*arguments, "--set", "operator.enabled=true").stdout.split("NOTES:")[1])


class Executor(unittest.TestCase):
    """Runs the two shell scripts of the DaemonSet with fake programs."""

    def start(self, folder, arguments=()):
        spec = next(spec for item, _, spec in pods(objects(render(arguments=arguments))) if item["kind"] == "DaemonSet")
        container = spec["containers"][0]
        programs = pathlib.Path(folder, "bin")
        programs.mkdir(exist_ok=True)
        for name in ("sleep", "muster-executor"):
            program = programs / name
            program.write_text(f'#!/bin/sh\necho {name} "$@"\n')
            program.chmod(0o755)
        shell = [part.replace("/var/lib/muster", f"{folder}/data") for part in container["command"]]
        environment = {"PATH": f"{programs}:{os.environ['PATH']}", "KUBERNETES_NODE_NAME": "gpu-7.rack-2.example.com"}
        ran = subprocess.run(shell, env=environment, capture_output=True, text=True, check=True)
        return ran.stdout.splitlines(), container

    def test_fresh_folder_waits_until_earlier_tasks_are_released(self):
        with tempfile.TemporaryDirectory() as folder:
            named = "muster-executor --node-name gpu-7-rack-2-example-com"
            # Lease, grace, one second of margin (`lost_after_ms` of the scheduler), and one more.
            self.assertEqual(self.start(folder)[0], ["sleep 22", named])
            self.assertEqual(self.start(folder, ["--set", "scheduler.graceMs=25500"])[0], ["sleep 38", named])
            self.assertEqual(self.start(folder, ["--set", "executor.data.kind=hostPath"])[0], [named])
            of_part = self.start(folder, ["--set", "executor.data.kind=hostPath,executor.pools.gpu.part=3g"])[0]
            self.assertEqual(of_part, [f"{named}--3g"])
            pathlib.Path(folder, "data/tasks").mkdir(parents=True)
            self.assertEqual(self.start(folder)[0], [named])

    def test_executor_is_ready_while_its_lease_is_renewed(self):
        with tempfile.TemporaryDirectory() as folder:
            _, container = self.start(folder)
            probe = [part.replace("/var/lib/muster", folder) for part in container["readinessProbe"]["exec"]["command"]]

            def is_ready():
                return subprocess.run(probe, capture_output=True).returncode == 0

            self.assertFalse(is_ready())
            lease = pathlib.Path(folder, "lease")
            lease.touch()
            self.assertTrue(is_ready())
            old = lease.stat().st_mtime - 60
            os.utime(lease, (old, old))
            self.assertFalse(is_ready())
