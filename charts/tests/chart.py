"""How the tests see the chart: helm runs, and the objects that it renders. Knows nothing of what is right."""

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

# Name -> (values files, further arguments). Each is linted, compared with its golden file and held to every rule.
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
    """Runs helm away from the user's own settings and any cluster."""
    with tempfile.TemporaryDirectory() as home:
        environment = {"PATH": os.environ["PATH"], "HOME": home, "KUBECONFIG": f"{home}/none"}
        return subprocess.run([HELM, *map(str, arguments)], env=environment, capture_output=True, text=True, timeout=60)


def files(values):
    return [argument for path in values for argument in ("--values", path)]


def render(values=(), arguments=(), chart=CHART):
    """The text of all objects; `values` are files."""
    ran = helm("template", "muster", chart, "--namespace", NAMESPACE, *files(values), *arguments)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def render_case(name):
    return render(*MATRIX[name])


def objects(text):
    return [document for document in yaml.safe_load_all(text) if document]


def refused(values):
    """What helm says to values that it must not take."""
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(values, file)
        file.flush()
        ran = helm("template", "muster", CHART, "--values", file.name)
    return None if ran.returncode == 0 else ran.stderr


def pod_of(item):
    """The pod's metadata and spec, of a kind that makes pods."""
    if item["kind"] in ("Deployment", "DaemonSet", "StatefulSet", "Job"):
        template = item["spec"]["template"]
        return template["metadata"], template["spec"]
    if item["kind"] == "ConfigMap" and "pod.yaml" in item["data"]:
        # What an executor makes its tasks' pods of.
        template = yaml.safe_load(item["data"]["pod.yaml"])
        return template["metadata"], template["spec"]
    return None


def pods(items):
    """(object, metadata of its pod, spec of its pod), for all that make pods."""
    return [(item, *pod) for item in items if (pod := pod_of(item))]


def containers(spec):
    return spec.get("initContainers", []) + spec["containers"]


def name_of(item):
    return f"{item['kind']}/{item['metadata']['name']}"


def matches(selector, labels):
    return all(labels.get(key) == value for key, value in selector.items())
