import hashlib
import io
import pathlib
import shutil
import tarfile
import tempfile
import unittest

from muster import Client, errors

from .server import Server, job, page

ID = job()["id"]


def log(text, offset=0, end=None, task="t1"):
    """Returns the answer of a part of a log."""
    body = text.encode() if isinstance(text, str) else text
    after = offset + len(body)
    headers = {"Muster-Log-Task": task, "Muster-Log-Next-Offset": after, "Muster-Log-End": after if end is None else end}
    return (200, body, headers)


class Phases(unittest.TestCase):
    def test_phase_asks_until_the_job_has_ended(self):
        with Server((200, job(phase="queued")), (200, job(phase="running")), (200, job(phase="succeeded"))) as server:
            found = Client(server.url, "t").job(ID)
            self.assertEqual([found.phase, found.phase, found.phase], ["running", "succeeded", "succeeded"])
            self.assertEqual(len(server.requests), 3)

    def test_wait_returns_the_ended_job(self):
        with Server((200, job()), (200, job()), (200, job(phase="failed", failure="exit code 3"))) as server:
            found = Client(server.url, "t").job(ID).wait(10)
            self.assertEqual(found.failure, "exit code 3")
            with self.assertRaisesRegex(errors.JobFailed, "train failed: exit code 3"):
                found.wait(check=True)

    def test_wait_ends_after_its_timeout(self):
        with Server((200, job())) as server, self.assertRaisesRegex(TimeoutError, "train is running"):
            Client(server.url, "t").job(ID).wait(0.1)


class Artifacts(unittest.TestCase):
    def download(self, path, sha256):
        listed = {"path": path, "bytes": 3, "sha256": sha256, "content_type": "text/plain"}
        place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, place)
        with Server((200, job()), (200, page(listed)), (200, b"abc", {"Muster-Sha256": sha256})) as server:
            files = Client(server.url, "t").job(ID).download_artifacts(place, "plots/")
            self.assertEqual(server.requests[1].query["prefix"], ["plots/"])
            self.assertEqual(server.requests[2].query["path"], [path])
        return place, files

    def test_files_are_downloaded_with_their_folders(self):
        place, files = self.download("plots/a b.txt", hashlib.sha256(b"abc").hexdigest())
        self.assertEqual(files, [place / "plots" / "a b.txt"])
        self.assertEqual(files[0].read_bytes(), b"abc")

    def test_tar_file_is_downloaded_as_one(self):
        place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, place)
        with Server((200, job()), (200, b"tar")) as server:
            files = Client(server.url, "t").job(ID).download_artifacts(place / "all.tar", "plots/")
            self.assertTrue(server.requests[1].path.endswith("/artifacts/archive"), server.requests[1].path)
            self.assertEqual(server.requests[1].query["prefix"], ["plots/"])
        self.assertEqual(files, [place / "all.tar"])
        self.assertEqual(files[0].read_bytes(), b"tar")

    def test_aborted_tar_file_is_an_error(self):
        place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, place)
        with Server((200, job()), (200, b"3\r\ntar\r\n", {"Transfer-Encoding": "chunked"})) as server:
            with self.assertRaises(errors.MusterError):
                Client(server.url, "t").job(ID).download_artifacts(place / "all.tar")
        self.assertEqual(list(place.glob("all.tar")), [])

    def test_changed_content_is_an_error(self):
        with self.assertRaisesRegex(errors.MusterError, "expected 00"):
            self.download("plots/a.txt", "00")

    def test_path_out_of_the_folder_is_refused(self):
        with self.assertRaisesRegex(errors.MusterError, "elsewhere"):
            self.download("plots/../../a.txt", "00")


class Checkpoints(unittest.TestCase):
    def download(self, name):
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as files:
            entry = tarfile.TarInfo(name)
            entry.size = 3
            files.addfile(entry, io.BytesIO(b"abc"))
        listed = page({"step": 5, "path": "step-5", "retained": True}, {"step": 3, "path": "step-3", "retained": False})
        place = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, place)
        with Server((200, job()), (200, listed), (200, content.getvalue())) as server:
            path = Client(server.url, "t").job(ID).download_checkpoint(5, place)
            self.assertEqual(server.requests[2].path.split("/")[-3:], ["checkpoints", "5", "archive"])
        return place, path

    def test_checkpoint_is_unpacked(self):
        place, path = self.download("step-5/model.bin")
        self.assertEqual(path, place / "step-5")
        self.assertEqual([file.name for file in place.iterdir()], ["step-5"])
        self.assertEqual((path / "model.bin").read_bytes(), b"abc")

    def test_entry_out_of_the_folder_is_refused(self):
        for name in ("../model.bin", "step-5/../../model.bin", "/tmp/model.bin"):
            with self.assertRaisesRegex(errors.MusterError, "no file of a checkpoint"):
                self.download(name)


class Logs(unittest.TestCase):
    def test_whole_log_is_read_in_parts(self):
        with Server((200, job()), log("first ", end=10), log("last", 6)) as server:
            self.assertEqual(Client(server.url, "t").job(ID).logs(), "first last")
            self.assertEqual([request.query["offset"] for request in server.requests[1:]], [["0"], ["6"]])

    def test_restart_while_reading_begins_again(self):
        answers = [log("old ", end=10), log("x", 4, task="t2"), log("new", task="t2")]
        with Server((200, job()), *answers) as server:
            self.assertEqual(Client(server.url, "t").job(ID).logs(), "new")

    def test_following_yields_lines_until_the_job_ends(self):
        done = (200, job(phase="succeeded"))
        missing = (404, {"title": "no task yet"})
        half = "ż".encode()
        answers = [
            (200, job(phase="queued")),
            *[(200, job(phase="queued")), missing, (200, job())],
            *[(200, job()), log(b"one\ntw" + half[:1])],
            *[(200, job()), log(half[1:] + b"o\n", 7)],
            *[done, log(b"last", 10)],
            log(b"", 14),
        ]
        with Server(*answers) as server:
            lines = list(Client(server.url, "t").job(ID).logs(follow=True))
        self.assertEqual(lines, ["one", "twżo", "last"])

    def test_following_continues_with_the_next_task(self):
        before = [(200, job()), log("old\nTrace")]
        restarted = [(200, job(phase="succeeded")), log("", 4, task="t2"), log("back", 9), log("new\n", task="t2")]
        with Server((200, job()), *before, *restarted, log("", 4, task="t2")) as server:
            lines = list(Client(server.url, "t").job(ID).logs(follow=True))
        self.assertEqual(lines, ["old", "Traceback", "new"])

    def test_followed_log_has_no_tail(self):
        with Server((200, job())) as server, self.assertRaisesRegex(ValueError, "tail_bytes is given with follow"):
            Client(server.url, "t").job(ID).logs(follow=True, tail_bytes=9)


class Metrics(unittest.TestCase):
    def test_points_of_many_names_are_asked_in_parts(self):
        names = [f"m{number}" for number in range(12)]

        def series(part):
            return (200, page(*({"name": name, "bucket_steps": 1, "points": [{"step": 2, "last": 0.5}]} for name in part)))

        with Server((200, job()), series(names[:10]), series(names[10:])) as server:
            found = Client(server.url, "t").job(ID).points(names)
        self.assertEqual(list(found), names)
        self.assertEqual((found["m3"].steps, found["m3"].values, len(found["m3"])), ([2], [0.5], 1))
        self.assertEqual([len(request.query["name"]) for request in server.requests[1:]], [10, 2])


class Display(unittest.TestCase):
    HOSTILE = "<script>alert(\"1\")</script>'&"

    def shown(self, server):
        client = Client(server.url, "t")
        first = client.job(ID)
        return first._repr_html_() + client.jobs()._repr_html_() + client.nodes()._repr_html_() + first.points("x")._repr_html_() + first.metrics()._repr_html_()

    def test_all_text_is_escaped(self):
        bad = self.HOSTILE
        hostile = job(name=bad, phase="failed", failure=bad, waiting={"message": bad})
        node = {"name": bad, "state": bad, "gpus": [], "capacity": {"gpus": [{"kind": bad}]}}
        series = {"name": bad, "bucket_steps": 1, "points": [{"step": 1, "last": 1.0}, {"step": 2, "last": float("inf")}]}
        metric = {"name": bad, "last": 0.1, "last_step": 1, "min": 0.1, "max": 0.1}
        samples = {"samples": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}, {"step": 3, "loss": None}]}
        answers = [hostile, samples, page(hostile), page(node), page(series), page(metric)]
        with Server(*((200, answer) for answer in answers)) as server:
            html = self.shown(server)
        self.assertNotIn("<script", html)
        self.assertNotIn("alert(\"", html)
        self.assertIn("&lt;script&gt;", html)
        self.assertIn("<polyline", html)

    def test_job_is_shown_without_its_server(self):
        with Server((200, job()), (500, {})) as server:
            found = Client(server.url, "t").job(ID)
            self.assertIn("train", found._repr_html_())

    def test_curve_of_equal_values_lies_in_the_middle(self):
        from muster import _display

        self.assertIn('points="6.0,60.0 354.0,60.0"', _display.curve("x", [(1, 5.0), (9, 5.0)]))
        self.assertIn("<circle", _display.curve("x", [(1, 5.0)]))
        self.assertIn("no points", _display.curve("x", [(1, float("nan"))]))
