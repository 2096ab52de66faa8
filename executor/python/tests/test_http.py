import unittest

from muster import Client, errors

from .server import Server, job, page

PROBLEM = {
    "type": "urn:muster:problem:invalid-job",
    "title": "The job document is not valid",
    "status": 422,
    "detail": "2 errors",
    "instance": "request-1",
    "errors": [
        {"field": "scale.workers.max", "value": "2", "expected": "at least min (5)"},
        {"field": "name", "value": '""', "expected": "1 to 63 characters"},
    ],
}
ID = job()["id"]


def client(server, **options):
    return Client(server.url, "secret", **options)


class Refusals(unittest.TestCase):
    def test_message_names_each_field_its_value_and_the_remedy(self):
        with Server((422, PROBLEM)) as server:
            with self.assertRaises(errors.InvalidRequest) as raised:
                client(server).submit({"name": ""})
        error = raised.exception
        self.assertEqual((error.status, error.type, error.instance), (422, PROBLEM["type"], "request-1"))
        self.assertEqual(error.errors[0].field, "scale.workers.max")
        self.assertIn("scale.workers.max is 2; expected at least min (5)", str(error))
        self.assertIn('name is ""; expected 1 to 63 characters', str(error))

    def test_error_that_the_detail_contains_is_not_repeated(self):
        first = PROBLEM["errors"][0]
        detail = "scale.workers.max is 2; expected at least min (5)"
        error = errors.refusal(422, {**PROBLEM, "detail": detail, "errors": [first]})
        self.assertEqual(str(error), f"The job document is not valid (422): {detail}")

    def test_status_determines_the_class(self):
        kinds = {400: "InvalidRequest", 401: "Unauthenticated", 403: "Forbidden", 404: "NotFound", 409: "Conflict", 418: "ApiError", 500: "ServerError"}
        for status, kind in kinds.items():
            with Server((status, {"title": "No"})) as server, self.assertRaises(errors.ApiError) as raised:
                client(server).me()
            self.assertEqual(type(raised.exception).__name__, kind)

    def test_answer_that_is_no_problem_is_quoted(self):
        with Server((404, b"<h1>proxy</h1>")) as server, self.assertRaisesRegex(errors.NotFound, "HTTP 404: .*proxy"):
            client(server).me()

    def test_redirection_is_not_followed(self):
        with Server((200, {})) as other, Server((302, b"", {"Location": other.url})) as server:
            with self.assertRaisesRegex(errors.ApiError, f"redirects to {other.url}"):
                client(server).me()
            self.assertEqual(other.requests, [])


class Retries(unittest.TestCase):
    def test_get_is_repeated_after_a_lost_connection(self):
        with Server(None, (503, {"title": "starts"}), (200, {"user": "me"})) as server:
            self.assertEqual(client(server).me(), {"user": "me"})
            self.assertEqual(len(server.requests), 3)

    def test_verb_is_not_repeated(self):
        with Server((200, job()), None) as server:
            found = client(server).job(ID)
            with self.assertRaisesRegex(errors.Unreachable, server.url):
                found.cancel()
            self.assertEqual(len(server.requests), 2)

    def test_submission_is_repeated_under_one_key(self):
        with Server(None, (201, job())) as server:
            client(server).submit({"name": "train"})
            first, second = (request.headers["Idempotency-Key"] for request in server.requests)
            self.assertTrue(first)
            self.assertEqual(first, second)

    def test_request_beyond_the_limits_waits_and_is_repeated(self):
        with Server((200, job()), (429, {"title": "slow down"}, {"Retry-After": 0}), (202, job(phase="stopping"))) as server:
            self.assertEqual(client(server).job(ID).cancel().data["phase"], "stopping")

    def test_patience_ends(self):
        with Server(None) as server:
            with self.assertRaises(errors.Unreachable):
                client(server, patience_s=0.3).me()
            self.assertGreater(len(server.requests), 1)


class Requests(unittest.TestCase):
    def test_token_and_tenant_are_headers(self):
        with Server((200, {})) as server:
            client(server, tenant="team").me()
            headers = server.requests[0].headers
        self.assertEqual((headers["Authorization"], headers["Muster-Tenant"]), ("Bearer secret", "team"))

    def test_list_has_the_items_of_all_pages(self):
        pages = [(200, page({"name": "a"}, next_page="n&=x")), (200, page({"name": "b"}))]
        with Server(*pages) as server:
            self.assertEqual([node["name"] for node in client(server).nodes()], ["a", "b"])
            self.assertEqual(server.requests[1].query["continue"], ["n&=x"])

    def test_limit_ends_a_list_before_the_next_page(self):
        with Server((200, page(job(), next_page="more"))) as server:
            self.assertEqual(len(client(server).jobs(limit=1)), 1)
            self.assertEqual(len(server.requests), 1)

    def test_filters_are_parameters(self):
        with Server((200, page())) as server:
            client(server).jobs(phase=["failed", "running"], name="a b", labels={"team": "x"})
            query = server.requests[0].query
        self.assertEqual((query["phase"], query["name"], query["label"]), (["failed", "running"], ["a b"], ["team=x"]))

    def test_name_prefers_a_job_that_has_not_ended(self):
        with Server((200, page()), (200, page(job(phase="failed")))) as server:
            self.assertEqual(client(server).job("train").data["phase"], "failed")
            self.assertIn("running", server.requests[0].query["phase"])
            self.assertNotIn("phase", server.requests[1].query)

    def test_unknown_name_is_named(self):
        with Server((200, page())) as server, self.assertRaisesRegex(errors.NotFound, "no job has the name or id 'a/b'"):
            client(server).job("a/b")

    def test_address_without_scheme_is_refused(self):
        with self.assertRaisesRegex(ValueError, "example:7070"):
            Client("example:7070", "secret")
