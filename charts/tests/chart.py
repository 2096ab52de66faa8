"""Access to the chart for tests: runs of helm and the rendered objects. Contains no checks."""

import os
import pathlib
import subprocess
import tempfile

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "charts/muster"
TESTS = ROOT / "charts/tests"
HELM = pathlib.Path(os.environ["MUSTER_HELM"]) / "bin/helm"
NAMESPACE = "training"

# Name -> (values files, further arguments). Each case is linted, compared with its golden file and
# checked by every rule.
MATRIX = {
    "default": ([TESTS / "cases/default.yaml"], []),
    "production": ([TESTS / "cases/production.yaml"], []),
    "openshift": ([TESTS / "cases/openshift.yaml"], []),
    "bucket": ([TESTS / "cases/bucket.yaml"], []),
    "rdma": ([TESTS / "cases/rdma.yaml"], []),
    "pods": ([TESTS / "cases/pods.yaml"], []),
    "trial": ([CHART / "trial.yaml"], []),
    "trial-upgrade": ([CHART / "trial.yaml"], ["--is-upgrade"]),
}


def helm(*arguments):
    """Runs helm without the user's settings and without a cluster."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": f"{home}/none"}
        return subprocess.run([HELM, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=60)


def files(values):
    return [argument for path in values for argument in ("--values", path)]


def render(values=(), arguments=(), chart=CHART):
    """Returns the text of all objects; `values` are files."""
    ran = helm("template", "muster", chart, "--namespace", NAMESPACE, *files(values), *arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def render_case(name):
    return render(*MATRIX[name])


def objects(text):
    return [document for document in yaml.safe_load_all(text) if document]


def refused(values):
    """Returns helm's error for invalid values."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        ran = helm("template", "muster", CHART, "--values", file.name)
    return None if ran.returncode == 0 else ran.stderr


def pod_of(item):
    """Returns the pod's metadata and spec, for a kind that creates pods."""
    if item["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job"):
        template = item["spec"]["template"]
        return template["metadata"], template["spec"]
    if item["kind"] == "ConfigMap" and "pod.yaml" in item["data"]:
        # The template of an executor's task pods.
        template = yaml.safe_load(item["data"]["pod.yaml"])
        return template["metadata"], template["spec"]
    return None


def pods(items):
    """Returns (object, metadata of its pod, spec of its pod) for all objects that create pods."""
    return [(item, *pod) for item in items if (pod := pod_of(item))]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def name_of(item):
    return f"{item['kind']}/{item['metadata']['name']}"


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())
