"""Checks the rendered objects: golden files, Kubernetes' schemas, and the rules of the chart."""

import base64
import json
import os
import re
import unittest

import kubernetes_validate
import yaml
from chart import MATRIX, NAMESPACE, TESTS, CHART, containers, files, helm, matches, name_of, objects, pods, render, render_case

# The oldest version that Chart.yaml admits, and the newest with available schemas.
VERSIONS = ("1.25", "1.36")
# Kinds of operators, which Kubernetes' schemas do not contain.
FOREIGN = {"ServiceMonitor", "PodMonitor"}
RENDERED = {name: render_case(name) for name in MATRIX}
# Objects that the user creates for the case's values.
EXTERNAL = {
    "default": {"Secret/muster-postgres"},
    "production": {
        "Secret/database-logins", "Secret/database-ca", "Secret/muster-join-token", "Secret/keys-of-users", "Secret/sessions-ca", "Secret/tracking-login",
        "Secret/operator-login",
        "Secret/mirror-login", "Secret/muster-example-com", "PersistentVolumeClaim/imagenet-and-more", "ServiceAccount/scheduler-of-ours",
    },
    "openshift": {"Secret/muster-postgres", "Secret/training-join", "ServiceAccount/default"},
    "bucket": {"Secret/muster-postgres", "Secret/muster-join", "Secret/bucket-login", "Secret/sessions-tls", "Secret/muster-operator-token", "PersistentVolumeClaim/datasets"},
    "rdma": {"Secret/muster-postgres", "Secret/muster-join", "PersistentVolumeClaim/models", "PersistentVolumeClaim/sets"},
    "pods": {"Secret/muster-postgres", "Secret/muster-operator-token", "PersistentVolumeClaim/models", "ServiceAccount/trainers"},
    "trial": set(),
    "trial-upgrade": set(),
}


def each():
    for name, text in RENDERED.items():
        yield name, objects(text)


def without_chance(text):
    """Replaces random secrets by a marker, as in the golden files."""
    return re.sub(r"^(  (?:join-token|keys|[a-z]+-(?:url|password))): [A-Za-z0-9+/=]{20,}$", r"\1: (random)", text, flags=re.M)


class Rendered(unittest.TestCase):
    maxDiff = None

    def test_lint(self):
        for name, (values, _) in MATRIX.items():
            with self.subTest(name):
                ran = helm("lint", "--strict", CHART, *files(values))
                self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_golden_files(self):
        """MUSTER_GOLDEN=write updates them."""
        for name, text in RENDERED.items():
            path = TESTS / f"golden/{name}.yaml"
            if os.environ.get("MUSTER_GOLDEN") == "write":
                path.write_text(without_chance(text))
            with self.subTest(name):
                self.assertEqual(path.read_text(), without_chance(text), "renew with MUSTER_GOLDEN=write scripts/test-chart")

    def test_every_field_is_in_the_schema_of_kubernetes(self):
        for name, items in each():
            for item in items:
                for version in VERSIONS:
                    with self.subTest(name, item=name_of(item), version=version):
                        if item["kind"] not in FOREIGN:
                            kubernetes_validate.validate(item, version, strict=True)

    def test_names_are_unique_and_in_the_namespace(self):
        for name, items in each():
            names = [(item["metadata"].get("namespace") or "", name_of(item)) for item in items]
            self.assertEqual(sorted(names), sorted(set(names)), name)
            for item in items:
                where = None if item["kind"].startswith(("ClusterRole", "PriorityClass")) else NAMESPACE
                if item["kind"] in ("Role", "RoleBinding"):
                    # Roles of the operator are in the namespaces of the case; those of executors
                    # and placeholders are in their own.
                    given = (NAMESPACE,) if item["metadata"]["name"].endswith(("-executor", "-placeholders")) else ("vision", "speech")
                    self.assertIn(item["metadata"]["namespace"], given, name_of(item))
                else:
                    self.assertEqual(item["metadata"].get("namespace"), where, name_of(item))
                self.assertLessEqual(len(item["metadata"]["name"]), 63)

    def test_pods_are_neither_root_nor_privileged(self):
        for name, items in each():
            for item, _, spec in pods(items):
                with self.subTest(name, item=name_of(item)):
                    self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                    self.assertEqual(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
                    self.assertNotEqual(spec["securityContext"].get("runAsUser"), 0)
                    # Clients of Kubernetes' API: the operator, executors whose tasks are pods, and
                    # programs with a separate account.
                    asks = item["metadata"]["name"].endswith("-operator") or name == "pods" and item["kind"] in ("DaemonSet", "ConfigMap")
                    self.assertIs(spec["automountServiceAccountToken"], asks)
                    # The case enables it.
                    of_rdma = name == "rdma" and item["metadata"]["name"] == "muster-executor-gpu"
                    self.assertIs(spec.get("hostNetwork", False), of_rdma)
                    for field in ("hostPID", "hostIPC"):
                        self.assertNotIn(field, spec)
                    for container in containers(spec):
                        security = container["securityContext"]
                        self.assertIs(security["allowPrivilegeEscalation"], False)
                        self.assertIs(security["readOnlyRootFilesystem"], True)
                        self.assertEqual(security["capabilities"]["drop"], ["ALL"])
                        self.assertNotIn("privileged", security)
                        # The only exception; docs/kubernetes.md gives the reason.
                        if container["name"] == "prepare":
                            self.assertEqual(security["capabilities"]["add"], ["CHOWN"])
                            self.assertEqual(container["command"][0], "chown")
                        else:
                            self.assertEqual(security["capabilities"].get("add", []), ["IPC_LOCK"] if of_rdma else [])
                            self.assertNotEqual(security.get("runAsUser"), 0)

    def test_requests_are_set_and_images_have_one_version(self):
        for name, items in each():
            for item, _, spec in pods(items):
                for container in containers(spec):
                    with self.subTest(name, item=name_of(item), container=container["name"]):
                        if item["kind"] == "ConfigMap":
                            # The executor fills in the task's resources.
                            self.assertNotIn("resources", container)
                            continue
                        self.assertLessEqual({"cpu", "memory"}, container["resources"]["requests"].keys())
                        self.assertRegex(container["image"], r"(:[0-9][^:/]*|@sha256:[0-9a-f]{64})$")

    def test_every_image_can_come_from_a_mirror(self):
        for item, _, spec in pods(objects(RENDERED["production"])):
            self.assertEqual(spec["imagePullSecrets"], [{"name": "mirror-login"}], name_of(item))
            for container in containers(spec):
                self.assertTrue(container["image"].startswith("mirror.example.com:5000/muster/"), container["image"])

    def test_image_of_a_pool_is_not_merged(self):
        """The digest of production's images.executor must not apply to another image."""
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        pool = "executor.pools.own"
        given = [f"{pool}.gpus=none", f"{pool}.cpuSlots=1", f"{pool}.image.repository=ours/executor", "images.executor.tag=4.5.6"]
        mirror = "mirror.example.com:5000/muster"
        for more, expected in (([], f"{mirror}/ours/executor:{version}"), ([f"{pool}.image.tag=1.2.3"], f"{mirror}/ours/executor:1.2.3")):
            items = objects(render(MATRIX["production"][0], [part for one in [*given, *more] for part in ("--set", one)]))
            for pool_name, image in (("own", expected), ("mixed", f"{mirror}/muster-executor@sha256:{'2' * 64}")):
                spec = next(spec for item, _, spec in pods(items) if name_of(item) == f"DaemonSet/muster-executor-{pool_name}")
                for container in containers(spec):
                    self.assertEqual(container["image"], image)

    def test_long_running_pods_have_readiness_probes(self):
        """Otherwise helm does not wait, and a rolling update continues past crashing pods."""
        for name, items in each():
            for item, _, spec in pods(items):
                if item["kind"] in ("Deployment", "DaemonSet", "StatefulSet"):
                    self.assertTrue("readinessProbe" in spec["containers"][0], f"{name} {name_of(item)}")

    def test_hooks_are_deleted_after_success(self):
        """`helm uninstall` does not delete them."""
        for name, items in each():
            for item in items:
                annotations = item["metadata"].get("annotations", {})
                if "helm.sh/hook" in annotations:
                    self.assertIn("hook-succeeded", annotations["helm.sh/hook-delete-policy"].split(","), f"{name} {name_of(item)}")

    def test_selectors_find_their_pods_and_no_others(self):
        for name, items in each():
            made = pods(items)
            for item, metadata, _ in made:
                if item["kind"] not in ("Job", "ConfigMap"):
                    selector = item["spec"]["selector"]["matchLabels"]
                    found = [name_of(other) for other, of, _ in made if matches(selector, of["labels"])]
                    self.assertEqual(found, [name_of(item)], name)
            for item in items:
                spec = item.get("spec", {})
                if item["kind"] == "Service":
                    ports = {port["targetPort"] for port in spec["ports"]}
                    found = [pod for _, of, pod in made if matches(spec["selector"], of["labels"])]
                    self.assertEqual(len(found), 1, name_of(item))
                    self.assertLessEqual(ports, {port["name"] for c in found[0]["containers"] for port in c["ports"]})
                if item["kind"] in ("PodDisruptionBudget", "NetworkPolicy"):
                    selector = spec["selector" if item["kind"] == "PodDisruptionBudget" else "podSelector"]["matchLabels"]
                    self.assertTrue(any(matches(selector, of["labels"]) for _, of, _ in made), name_of(item))
                if item["kind"] == "ServiceMonitor":
                    services = [of for of in items if of["kind"] == "Service" and matches(spec["selector"]["matchLabels"], of["metadata"]["labels"])]
                    self.assertEqual([of["metadata"]["name"] for of in services], [item["metadata"]["name"]])
                    ports = {port["name"] for port in services[0]["spec"]["ports"]}
                    self.assertLessEqual({endpoint["port"] for endpoint in spec["endpoints"]}, ports)
                if item["kind"] == "PodMonitor":
                    found = [pod for _, of, pod in made if matches(spec["selector"]["matchLabels"], of["labels"])]
                    self.assertTrue(found, name_of(item))
                    for pod in found:
                        ports = {port["name"] for container in pod["containers"] for port in container.get("ports", [])}
                        self.assertLessEqual({endpoint["port"] for endpoint in spec["podMetricsEndpoints"]}, ports)

    def test_policies_cover_every_pod(self):
        for name in ("default", "production", "pods", "trial"):
            items = objects(RENDERED[name])
            policies = [item["spec"]["podSelector"]["matchLabels"] for item in items if item["kind"] == "NetworkPolicy"]
            for item, metadata, _ in pods(items):
                self.assertEqual(sum(matches(policy, metadata["labels"]) for policy in policies), 1, f"{name} {name_of(item)}")

    def test_objects_used_by_pods_exist(self):
        for name, items in each():
            there = {name_of(item) for item in items}
            used = {use for item in items for use in uses(item)}
            self.assertEqual(used - there, EXTERNAL[name], name)

    def test_every_mount_has_its_volume(self):
        for name, items in each():
            for item, _, spec in pods(items):
                volumes = {volume["name"] for volume in spec.get("volumes", [])}
                volumes |= {claim["metadata"]["name"] for claim in item.get("spec", {}).get("volumeClaimTemplates", [])}
                mounted = {mount["name"] for container in containers(spec) for mount in container.get("volumeMounts", [])}
                self.assertEqual(mounted, volumes, f"{name} {name_of(item)}")

    def test_placeholder_fits_beside_an_executor(self):
        """It requests the capacity of a node, unless the executor requests that itself, and is a
        valid pod."""
        for name, whole in (("production", False), ("pods", True)):
            items = objects(RENDERED[name])
            text = next(item["data"]["placeholders.json"] for item in items if name_of(item) == "ConfigMap/muster-placeholders")
            pools = json.loads(text)["pools"]
            executors = {item["metadata"]["labels"]["muster-pool"]: spec for item, _, spec in pods(items) if item["kind"] == "DaemonSet"}
            labels = {item["metadata"]["labels"]["muster-pool"]: metadata["labels"] for item, metadata, _ in pods(items) if item["kind"] == "DaemonSet"}
            # The number of GPUs is unknown for pools that see all GPUs of a node.
            self.assertEqual(set(executors) - set(pools), {"shared"} if whole else {"mixed"})
            for pool, of in pools.items():
                with self.subTest(name, pool=pool):
                    pod, executor = of["pod"], executors[pool]
                    for version in VERSIONS:
                        made = {"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**pod["metadata"], "name": "x"}}
                        kubernetes_validate.validate(made, version, strict=True)
                    for field in ("nodeSelector", "tolerations", "affinity", "runtimeClassName", "securityContext"):
                        self.assertEqual(pod["spec"].get(field), executor.get(field), field)
                    # Labels by which the operator identifies the release and pool of an executor
                    # pod.
                    label = "app.kubernetes.io/instance"
                    self.assertEqual((labels[pool][label], labels[pool]["muster-pool"]), (pod["metadata"]["labels"][label], pool))
                    self.assertIs(pod["spec"]["automountServiceAccountToken"], False)
                    (container,) = pod["spec"]["containers"]
                    resources = container["resources"]
                    counted = [key for key in resources.get("limits", {}) if "/" in key]
                    if whole:
                        self.assertEqual(counted, [] if pool == "cpu" else [f"nvidia.com/{ {'slices': 'mig-1g.10gb', 'small': 'mig-1g.10gb', 'large': 'mig-3g.40gb'}.get(pool, 'gpu')}"])
                        for resource in counted:
                            self.assertEqual(resources["limits"][resource], resources["requests"][resource])
                            self.assertEqual(int(resources["limits"][resource]), of["gpus"])
                    else:
                        self.assertEqual(resources["requests"], {"cpu": "10m", "memory": "16Mi"})
                        self.assertEqual(counted, [])
        gives = json.loads(text)["pools"]
        self.assertEqual((gives["gpu"]["cpuMilli"], gives["gpu"]["memoryBytes"], gives["gpu"]["parts"]), (62500, 480 << 30, False))
        self.assertEqual((gives["gpu"]["part"], gives["small"]["part"], gives["large"]["part"]), ("", "1g", "3g"))
        self.assertEqual((gives["cpu"]["gpus"], gives["cpu"]["cpuMilli"], gives["slices"]["parts"]), (4, 3500, True))

    def test_priority_classes_are_used(self):
        for name, own in (("production", "cluster-overprovisioning"), ("pods", None)):
            items = objects(RENDERED[name])
            made = [item for item in items if item["kind"] == "PriorityClass"]
            text = next(item["data"]["placeholders.json"] for item in items if name_of(item) == "ConfigMap/muster-placeholders")
            named = {of["pod"]["spec"]["priorityClassName"] for of in json.loads(text)["pools"].values()}
            self.assertEqual(named, {own} if own else {made[0]["metadata"]["name"]})
            # Below all other pods, but not so low that the cluster autoscaler ignores it.
            self.assertEqual([item["value"] for item in made], [] if own else [-10])

    def test_shared_memory_is_larger_than_the_default(self):
        """Without a volume, /dev/shm has 64 MiB, which data loaders and NCCL exceed."""
        for name, items in each():
            limit = {"rdma": "64Gi"}.get(name)
            for item, _, spec in pods(items):
                runs_tasks = item["kind"] == "ConfigMap" or item["kind"] == "DaemonSet" and name != "pods"
                volumes = {volume["name"]: volume for volume in spec.get("volumes", [])}
                mounted = [mount["name"] for mount in spec["containers"][0].get("volumeMounts", []) if mount["mountPath"] == "/dev/shm"]
                with self.subTest(name, item=name_of(item)):
                    self.assertEqual(len(mounted), 1 if runs_tasks else 0)
                    for volume in mounted:
                        self.assertEqual(volumes[volume]["emptyDir"], {"medium": "Memory", **({"sizeLimit": limit} if limit else {})})

    def test_rdma_devices_and_network_reach_the_pods_with_tasks(self):
        network = "k8s.v1.cni.cncf.io/networks"
        items = objects(RENDERED["rdma"])
        executors = {item["metadata"]["labels"]["muster-pool"]: (metadata, spec) for item, metadata, spec in pods(items) if item["kind"] == "DaemonSet"}
        for pool, resource in (("gpu", "rdma/hca"), ("roce", "rdma/hca_shared")):
            metadata, spec = executors[pool]
            resources = spec["containers"][0]["resources"]
            for amounts in (resources["requests"], resources["limits"]):
                self.assertEqual((amounts[resource], amounts["nvidia.com/gpu"]), (1, "8"))
            self.assertEqual(metadata.get("annotations", {}).get(network), {"roce": "rdma-net"}.get(pool))
            self.assertEqual(spec.get("dnsPolicy"), {"gpu": "ClusterFirstWithHostNet"}.get(pool))
        set_pool = ["extendedResources.rdma/hca=1", "capabilities={IPC_LOCK}", "hostNetwork=true", r"podAnnotations.k8s\.v1\.cni\.cncf\.io/networks=rdma-net"]
        arguments = [part for one in set_pool for part in ("--set", f"executor.pools.gpu.{one}")]
        items = objects(render(MATRIX["pods"][0], arguments))
        executor = next(found for found in pods(items) if name_of(found[0]) == "DaemonSet/muster-executor-gpu")
        self.assertNotIn(network, executor[1].get("annotations", {}))
        self.assertNotIn("hostNetwork", executor[2])
        _, metadata, task = next(found for found in pods(items) if name_of(found[0]) == "ConfigMap/muster-tasks-gpu")
        (container,) = task["containers"]
        self.assertEqual(container["resources"], {"requests": {"rdma/hca": 1}, "limits": {"rdma/hca": 1}})
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"], "add": ["IPC_LOCK"]})
        self.assertEqual((task["hostNetwork"], metadata["annotations"][network]), (True, "rdma-net"))

    def test_kubernetes_user_roles_include_jobs_and_studies(self):
        roles = {item["metadata"]["name"]: item for item in objects(RENDERED["pods"]) if item["kind"] == "ClusterRole"}
        prefix = "rbac.authorization.k8s.io/aggregate-to-"
        for name, into in (("edit", {"admin", "edit"}), ("view", {"view"})):
            role = roles[f"{NAMESPACE}-muster-jobs-{name}"]
            self.assertEqual({label.removeprefix(prefix) for label in role["metadata"]["labels"] if label.startswith(prefix)}, into)
            verbs = {resource: set(rule["verbs"]) for rule in role["rules"] for resource in rule["resources"]}
            self.assertEqual("create" in verbs["trainingjobs"], name == "edit")
            self.assertLessEqual({"get", "list", "watch"}, verbs["studies"])
            self.assertEqual("patch" in verbs["trainingjobs/scale"], name == "edit")
            # Only the operator writes the status, and only the cluster administrator changes
            # tenants.
            self.assertEqual(verbs["trainingjobs/status"], {"get"})
            self.assertNotIn("tenants", verbs)
        without = objects(render(MATRIX["pods"][0], ["--set", "operator.aggregateRoles=false"]))
        self.assertNotIn(f"{NAMESPACE}-muster-jobs-edit", {item["metadata"]["name"] for item in without})

    def test_users_programs_cannot_reach_the_bucket(self):
        """A label distinguishes pods of users' programs from those of the engine. Only the
        latter reach the bucket and the cloud's credentials."""
        of_cloud = ["checkpoints.kind=bucket", "checkpoints.bucket.url=s3://training/x", "checkpoints.bucket.port=9000", "executor.tasks.engineServiceAccount=engine"]
        items = objects(render(MATRIX["pods"][0], [part for one in of_cloud for part in ("--set", one)]))
        policies = [item["spec"] for item in items if item["kind"] == "NetworkPolicy" and item["metadata"]["name"].startswith("muster-task")]
        reached = {}
        for policy in policies:
            expressions = policy["podSelector"].get("matchExpressions", [])
            blocks = {peer["ipBlock"]["cidr"] for rule in policy.get("egress", []) for peer in rule.get("to", []) if "ipBlock" in peer}
            ports = {port["port"] for rule in policy.get("egress", []) for port in rule.get("ports", [])}
            reached[len(expressions)] = (9000 in ports, "169.254.169.252/30" in blocks)
            for expression in expressions:
                self.assertEqual(expression, {"key": "muster.dev/runs", "operator": "NotIn", "values": ["program"]})
        self.assertEqual(reached, {0: (False, False), 1: (True, True)})
        executor = next(spec for item, _, spec in pods(items) if item["kind"] == "DaemonSet")
        environment = {variable["name"]: variable.get("value") for variable in executor["containers"][0]["env"]}
        self.assertEqual(environment["MUSTER_EXECUTOR_POD_ENGINE_ACCOUNT"], "engine")

    def test_bucket_replaces_the_volume(self):
        items = objects(RENDERED["bucket"])
        for kind, name in (("Deployment", "muster-api"), ("DaemonSet", "muster-executor-gpu")):
            spec = next(spec for item, _, spec in pods(items) if name_of(item) == f"{kind}/{name}")
            self.assertNotIn("checkpoints", [volume["name"] for volume in spec.get("volumes", [])])
            (container,) = spec["containers"]
            self.assertIn({"secretRef": {"name": "bucket-login"}}, container["envFrom"])
            self.assertIn("s3://training/checkpoints", [variable.get("value") for variable in container["env"]])
        policies = {item["metadata"]["name"]: item["spec"] for item in items if item["kind"] == "NetworkPolicy"}
        for name, reaches in (("api", True), ("executor", True), ("scheduler", False), ("migrate", False)):
            ports = [port["port"] for rule in policies[f"muster-{name}"]["egress"] for port in rule.get("ports", [])]
            self.assertEqual(9000 in ports, reaches, name)

    def test_credentials_of_the_cloud_can_be_fetched(self):
        """Without a secret they come from the issuers of AWS, Google and Azure: link-local
        addresses of the node, or a service beside the bucket."""
        values, _ = MATRIX["bucket"]
        of_cloud = ["--set", "checkpoints.bucket.credentialsSecret="]
        for arguments, expected in (([], False), (of_cloud, True)):
            items = objects(render(values, arguments))
            for name in ("muster-api", "muster-executor"):
                policy = next(item["spec"] for item in items if name_of(item) == f"NetworkPolicy/{name}")
                rules = [rule for rule in policy["egress"] if 9000 in [port["port"] for port in rule.get("ports", [])]]
                self.assertEqual([443 in [port["port"] for port in rule["ports"]] for rule in rules], [expected], name)
                blocks = {peer["ipBlock"]["cidr"] for rule in policy["egress"] for peer in rule.get("to", []) if "ipBlock" in peer}
                self.assertEqual(blocks, {"169.254.169.252/30", "169.254.170.23/32"} if expected else set(), name)
        # The port is opened once if both use the same.
        items = objects(render(values, [*of_cloud, "--set", "checkpoints.bucket.port=443"]))
        policy = next(item["spec"] for item in items if name_of(item) == "NetworkPolicy/muster-api")
        ports = [port["port"] for rule in policy["egress"] for port in rule.get("ports", [])]
        self.assertEqual(ports.count(443), 1)

    def test_secrets_are_random_and_not_in_manifests(self):
        def secrets(items):
            return {key: base64.b64decode(value).decode() for item in items if item["kind"] == "Secret" for key, value in item["data"].items()}

        first, second = secrets(objects(RENDERED["trial"])), secrets(objects(render_case("trial")))
        self.assertEqual(first.keys(), second.keys())
        for key, value in first.items():
            self.assertNotEqual(value, second[key], key)
            self.assertGreaterEqual(len(value), 40, key)
            self.assertEqual(RENDERED["trial"].count(value), 0, key)
        for role in ("owner", "api", "scheduler"):
            self.assertIn(f":{first[f'{role}-password']}@muster-postgres.{NAMESPACE}.svc:5432/muster", first[f"{role}-url"])


def uses(item):
    """Returns the objects that an object needs, as Kind/name."""
    if item["kind"] == "Ingress":
        for tls in item["spec"].get("tls", []):
            yield f"Secret/{tls['secretName']}"
        for rule in item["spec"]["rules"]:
            for path in rule["http"]["paths"]:
                yield f"Service/{path['backend']['service']['name']}"
    for _, _, spec in pods([item]):
        if "serviceAccountName" in spec:
            yield f"ServiceAccount/{spec['serviceAccountName']}"
        for secret in spec.get("imagePullSecrets", []):
            yield f"Secret/{secret['name']}"
        for volume in spec.get("volumes", []):
            if "secret" in volume:
                yield f"Secret/{volume['secret']['secretName']}"
            if "configMap" in volume:
                yield f"ConfigMap/{volume['configMap']['name']}"
            if "persistentVolumeClaim" in volume:
                yield f"PersistentVolumeClaim/{volume['persistentVolumeClaim']['claimName']}"
        for container in containers(spec):
            for variable in container.get("env", []):
                if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                    yield f"Secret/{reference['name']}"
            for source in container.get("envFrom", []):
                if "secretRef" in source:
                    yield f"Secret/{source['secretRef']['name']}"
