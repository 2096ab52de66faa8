import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

from muster import _job, _study, client

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "executor/python"


class Package(unittest.TestCase):
    def test_version_is_that_of_the_workspace(self):
        versions = [re.search(r'(?m)^version = "([^"]+)"', (at).read_text()).group(1) for at in (ROOT / "Cargo.toml", PACKAGE / "pyproject.toml")]
        self.assertEqual(versions[0], versions[1])

    def test_import_loads_no_client_and_no_library(self):
        script = "import sys, muster; print([name for name in sys.modules if name.startswith(('muster.client', 'torch', 'optuna'))])"
        said = subprocess.run([sys.executable, "-c", script], cwd=PACKAGE, stdout=subprocess.PIPE, check=True, encoding="utf-8")
        self.assertEqual(said.stdout.strip(), "[]")

    def test_phases_and_requests_are_those_of_the_server(self):
        interface = json.loads((ROOT / "api/openapi.json").read_text())
        schemas = interface["components"]["schemas"]
        self.assertEqual({*client.OPEN, *_job.ENDED}, set(schemas["JobPhase"]["enum"]))
        self.assertLess(set(_study.ENDED), set(schemas["StudyPhase"]["enum"]))
        paths = {path for path in interface["paths"] if path.count("/") < 7}
        for part in ("logs", "metrics", "metrics/points", "progress", "tasks", "events", "cancel", "pause", "resume"):
            self.assertIn(f"/api/v1/jobs/{{id}}/{part}", paths)
        for part in ("trials", "best", "ask", "tell", "extend", "cancel", "pause", "resume"):
            self.assertIn(f"/api/v1/studies/{{id}}/{part}", paths)

    def test_files_of_a_task_need_no_other_file(self):
        listed = re.findall(r'module!\("(\w+\.py)"\)', (ROOT / "executor/src/command/files.rs").read_text())
        self.assertIn("__init__.py", listed)
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "muster")
            package.mkdir()
            for name in listed:
                shutil.copy(PACKAGE / "muster" / name, package)
            script = "import muster, muster.elastic; print(muster.world().size); muster.Client"
            ended = subprocess.run([sys.executable, "-c", script], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
            self.assertEqual(ended.stdout.strip(), "1", ended.stderr)
            self.assertRegex(ended.stderr, "ImportError: this copy of the package, which tasks receive, has no client")
            for name in listed:
                # The libraries of the callbacks need not be here.
                for needed in re.findall(r"(?m)^(?:    )?from \.(\w+) import", (package / name).read_text()):
                    self.assertTrue(f"{needed}.py" in listed or needed == "client", f"{name} needs {needed}")

    def test_every_file_but_those_of_the_client_is_sent_to_tasks(self):
        listed = set(re.findall(r'module!\("(\w+\.py)"\)', (ROOT / "executor/src/command/files.rs").read_text()))
        client = {"client.py", "errors.py", "_cli.py", "_display.py", "_document.py", "_http.py", "_job.py", "_metrics.py", "_resource.py", "_settings.py", "_study.py"}
        self.assertEqual(listed | client, {path.name for path in (PACKAGE / "muster").glob("*.py")})

    def test_examples_of_the_documentation_are_python(self):
        page = (ROOT / "docs/python.md").read_text()
        examples = re.findall(r"(?ms)^```python\n(.*?)^```", page)
        self.assertGreater(len(examples), 6)
        for example in examples:
            compile(example, "docs/python.md", "exec")
            for module, names in re.findall(r"(?m)^from (muster[.\w]*) import (.+)$", example):
                source = (PACKAGE / module.replace(".", "/")).with_suffix(".py")
                text = (source if source.exists() else PACKAGE / "muster/__init__.py").read_text()
                for name in names.split(", "):
                    is_module = (PACKAGE / module.replace(".", "/") / f"{name}.py").exists()
                    self.assertTrue(is_module or re.search(rf"\b{name}\b", text), f"{module} has no {name}")
