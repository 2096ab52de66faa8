"""Studies: requests and answers."""

import unittest

from muster import Client

from .server import Server

ID = "01a22a46-394e-777c-bb5a-8b033b64468e"
TRIAL = {"number": 3, "state": "completed", "parameters": {"lr": 0.5}, "outcome": {"values": [0.9]}, "job_id": ID}


def study(**change):
    search = {"objectives": [{"metric": "f1", "goal": "maximize"}]}
    return {"id": ID, "name": "s", "phase": "running", "document": {"search": search}, **change}


def page(*items):
    return {"items": list(items), "continue": None}


class Requests(unittest.TestCase):
    def opened(self, server):
        return Client(server.url, "t").study(ID)

    def test_job_of_the_best_trial_is_found(self):
        best = {"trial": TRIAL, "checkpoint": None, "model_path": None}
        with Server((200, study()), (200, page(best)), (200, {"id": ID, "name": "s-3", "phase": "succeeded"})) as server:
            opened = self.opened(server)
            self.assertEqual(opened.job(opened.best).name, "s-3")
        self.assertTrue(server.requests[-1].path.endswith(f"/jobs/{ID}"))

    def test_results_carry_their_progress(self):
        with Server((200, study()), (200, {"stopped": [2]})) as server:
            opened = self.opened(server)
            with self.assertRaisesRegex(ValueError, "step is None for a trial that is finished"):
                opened.tell(3, {"f1": 0.9})
            self.assertEqual(opened.tell(3, {"f1": 0.9}, step=4, exhausted=True), [2])
        result = {"trial": 3, "values": {"f1": 0.9}, "step": 4, "state": "finished", "exhausted": True}
        self.assertEqual(server.requests[-1].json(), {"results": [result]})

    def test_asking_and_extending_can_be_repeated(self):
        with Server((200, study()), (200, {"trials": [TRIAL]}), (200, study())) as server:
            opened = self.opened(server)
            self.assertEqual(opened.ask(2), [TRIAL])
            opened.extend(5)
        keys = [request.headers.get("Idempotency-Key") for request in server.requests[1:]]
        self.assertTrue(all(keys) and keys[0] != keys[1], keys)
