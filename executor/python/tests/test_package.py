import pathlib
import re
import subprocess
import sys
import unittest

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
