import json
import os
import pathlib
import stat
import tempfile
import unittest
from unittest import mock

from muster import Client, _document, errors

from .server import Server, job

# Stands for the command: prints what it receives.
COMMAND = """#!/usr/bin/env python3
import json, os, sys
if os.environ.get("FAILS"):
    sys.exit("muster: no room\\n")
print(json.dumps({"arguments": sys.argv[1:], "document": sys.stdin.read(), "token": os.environ["MUSTER_TOKEN"], "server": os.environ["MUSTER_SERVER"]}))
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path


class Sources(Folder):
    def test_map_is_sent_as_json(self):
        self.assertEqual(_document.read({"name": "a"}), ('{"name": "a"}', "application/json"))

    def test_file_of_yaml_is_sent_as_text(self):
        path = self.write("job.yaml", "name: a\n")
        for source in (path, str(path)):
            self.assertEqual(_document.read(source), ("name: a\n", "application/yaml"))

    def test_text_is_no_path(self):
        for text, kind in [("name: a\ncommand: {}\n", "yaml"), ("{ name: a }", "yaml"), ('{"name": "a"}', "json"), ("name: a", "yaml")]:
            self.assertEqual(_document.read(text), (text, f"application/{kind}"))

    def test_missing_file_is_an_error(self):
        with self.assertRaises(FileNotFoundError):
            _document.read("no-such.yaml")


class Templates(unittest.TestCase):
    def test_values_are_sent_once_by_key(self):
        with Server((201, job())) as server:
            Client(server.url, "t").submit_template("rank", {"lr": 0.1})
        request = server.requests[-1]
        self.assertTrue(request.path.endswith("/templates/rank/submit"), request.path)
        self.assertEqual(request.json(), {"parameters": {"lr": 0.1}})
        self.assertTrue(request.headers.get("Idempotency-Key"))

    def test_dry_run_has_no_key(self):
        with Server((200, job())) as server:
            Client(server.url, "t").submit_template("rank", dry_run=True)
        request = server.requests[-1]
        self.assertEqual(request.query, {"dry_run": ["true"]})
        self.assertIsNone(request.headers.get("Idempotency-Key"))


class Programs(unittest.TestCase):
    def test_document_is_that_of_the_command_line(self):
        found = _document.of_program(
            ["python3", "src/My_Model.py", 3],
            gpus=2,
            workers=(1, 8),
            gpu_kinds=["A100"],
            cpus=0.5,
            memory="16Gi",
            image="x",
            requirements="r.txt",
            env={"A": 1},
            fields={"retries": 0, "stop.wall_minutes": 5},
        )
        expected = {
            "version": "muster/v1",
            "name": "my-model",
            "command": {"argv": ["python3", "src/My_Model.py", "3"], "python": {"requirements": "r.txt"}, "env": {"A": "1"}},
            "scale": {"workers": {"min": 1, "max": 8}},
            "resources": {"worker": {"gpus": 2, "gpu_kinds": ["A100"], "cpu_milli": 500, "memory_bytes": "16Gi"}},
            "pod": {"image": "x"},
            "retries": 0,
            "stop": {"wall_minutes": 5},
        }
        self.assertEqual(found, expected)

    def test_name_follows_the_program(self):
        cases = {
            "python train.py --lr 0.1": "train",
            "python -m torch.distributed.run train.py": "train",
            "python -m project.fit --lr 1": "project-fit",
            "torchrun --nproc-per-node 2 fit.py": "fit",
            "bash -c ls": "bash",
            "./___": "run",
        }
        for argv, name in cases.items():
            self.assertEqual(_document.name_of(argv.split()), name)

    def test_workers_are_a_number_or_a_range(self):
        for given, expected in [(4, (4, 4)), ("4", (4, 4)), ((1, 8), (1, 8)), ("1:8", (1, 8))]:
            self.assertEqual(_document.worker_range(given), expected)
        for wrong in (0, "8:1", "a", "1:", (1, 2, 3), -1, ()):
            with self.assertRaisesRegex(ValueError, "expected a number"):
                _document.worker_range(wrong)

    def test_variables_of_this_process_are_named(self):
        with mock.patch.dict(os.environ, {"HUE": "red"}):
            self.assertEqual(_document.of_program(["a"], env=["HUE"])["command"]["env"], {"HUE": "red"})
        with self.assertRaisesRegex(ValueError, "env names NO_SUCH_HUE"):
            _document.of_program(["a"], env=["NO_SUCH_HUE"])

    def test_command_line_as_text_is_refused(self):
        with self.assertRaisesRegex(ValueError, "list"):
            _document.of_program("python3 train.py")


class Code(Folder):
    def setUp(self):
        super().setUp()
        self.command = self.write("fake-muster", COMMAND)
        self.command.chmod(self.command.stat().st_mode | stat.S_IXUSR)

    def test_folder_is_sent_by_the_command(self):
        with Server((200, job())) as server:
            sent = Client(server.url, "secret", cli=str(self.command)).run(["python3", "train.py"], code=self.folder, env={"KEY": "hidden"}).data
            self.assertEqual(server.requests[0].query, {"dry_run": ["true"]})
        self.assertEqual(sent["arguments"], ["--output", "json", "submit", "-", "--code", str(self.folder.resolve())])
        self.assertEqual((sent["token"], sent["server"]), ("secret", server.url))
        self.assertEqual(json.loads(sent["document"])["command"]["env"], {"KEY": "hidden"})

    def test_wrong_document_is_refused_before_code_is_sent(self):
        with Server((422, {"title": "wrong"})) as server, self.assertRaises(errors.InvalidRequest):
            Client(server.url, "t", cli=str(self.command)).run(["a"], code=self.folder)

    def test_failure_of_the_command_is_quoted(self):
        with Server((200, job())) as server, mock.patch.dict(os.environ, {"FAILS": "1"}):
            with self.assertRaisesRegex(errors.CliError, "code 1: muster: no room"):
                Client(server.url, "t", cli=str(self.command)).run(["a"], code=self.folder)

    def test_missing_command_names_the_remedy(self):
        with mock.patch.dict(os.environ, {"PATH": "", "MUSTER_CLI": ""}), self.assertRaisesRegex(errors.CliError, "MUSTER_CLI"):
            Client("http://127.0.0.1:1", "t").run(["a"], code=self.folder)

    def test_missing_requirements_are_refused_before_submission(self):
        with self.assertRaisesRegex(FileNotFoundError, "absent.txt"):
            Client("http://127.0.0.1:1", "t").run(["a"], code=self.folder, requirements="absent.txt")

    def test_program_without_code_needs_no_command(self):
        with Server((201, job())) as server, mock.patch.dict(os.environ, {"PATH": "", "MUSTER_CLI": ""}):
            Client(server.url, "t").run(["true"], code=None)
            self.assertEqual(server.requests[0].json()["command"], {"argv": ["true"]})
