"""A server that answers with prepared answers and records the requests."""

import http.server
import json
import threading
import urllib.parse


class Recorded:
    """A request that the server has received."""

    def __init__(self, handler, body):
        split = urllib.parse.urlsplit(handler.path)
        self.method = handler.command
        self.path = urllib.parse.unquote(split.path)
        self.query = urllib.parse.parse_qs(split.query)
        self.headers = handler.headers
        self.body = body

    def json(self):
        return json.loads(self.body)


class Server:
    """Answers each request with the next answer; with the last one when no other is left.

    An answer is `(status, body)` or `(status, body, headers)`. A body that is no bytes is sent as
    JSON. None drops the connection. A function gets the request and returns the answer.
    """

    def __init__(self, *answers):
        self.requests = []
        self._answers = list(answers)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self):
                length = int(self.headers.get("Content-Length") or 0)
                outer.requests.append(Recorded(self, self.rfile.read(length)))
                answer = outer._answers.pop(0) if len(outer._answers) > 1 else outer._answers[0]
                if callable(answer):
                    answer = answer(outer.requests[-1])
                if answer is None:
                    self.close_connection = True
                    return
                status, body, headers = (*answer, {})[:3]
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, str(value))
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_DELETE = answer

            def log_message(self, *_):
                pass

        class Listener(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass  # A client may end before its answer.

        self._server = Listener(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._server.shutdown()
        self._server.server_close()


def job(**fields):
    """Returns a `JobView` with these fields."""
    base = {
        "id": "01a22a46-394e-777c-bb5a-8b033b64468e",
        "name": "train",
        "phase": "running",
        "spec": {"version": "muster/v1"},
        "workers": {"running": 1, "min": 1, "max": 2},
        "progress": None,
        "waiting": None,
        "failure": None,
    }
    return {**base, **fields}


def page(*items, next_page=None):
    """Returns a page of a list."""
    return {"items": list(items), "continue": next_page}
