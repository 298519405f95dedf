"""A real HTTP server on this machine, which fails in the ways that they do."""

import base64
import hashlib
import http.server
import re
import threading
import time
import urllib.parse

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def status(code, **headers):
    """An answer without a body."""

    def answer(handler, item):
        handler.head(code, {**headers, "Content-Length": 0})

    return answer


def cut(count):
    """Stops after so many bytes of those that were promised."""

    def answer(handler, item):
        handler.serve(item, limit=count)

    return answer


def drip(seconds):
    """One byte after the other."""

    def answer(handler, item):
        handler.serve(item, limit=0)
        for byte in item.body:
            handler.send(bytes([byte]))
            time.sleep(seconds)

    return answer


def silent(seconds):
    """No answer at all."""

    def answer(handler, item):
        time.sleep(seconds)
        handler.close_connection = True

    return answer


def deaf(handler, item):
    """Sends the whole file whatever range was asked for."""
    del handler.headers["Range"]
    handler.serve(item)


def careless(handler, item):
    """Sends the range whatever the file was when the first part came."""
    del handler.headers["If-Range"]
    handler.serve(item)


def corrupt(handler, item):
    """Other bytes, the same length."""
    item = Item(bytes(b ^ 1 for b in item.body), item.headers)
    handler.serve(item)


class Item:
    """One file of the server, and what goes wrong with it, in this order."""

    def __init__(self, body, headers, faults=()):
        self.body, self.headers, self.faults = body, headers, list(faults)
        self.always = None


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        log = self.server.log
        path = urllib.parse.unquote(self.path.partition("?")[0])
        log.append((self.command, self.path, dict(self.headers)))
        item = self.server.items.get(path)
        try:
            if item is None:
                self.head(*self.server.missing(path))
            elif self.command == "GET" and item.faults:
                item.faults.pop(0)(self, item)
            elif self.command == "GET" and item.always:
                item.always(self, item)
            else:
                self.serve(item)
        except OSError:  # the client went away, as some tests make it do
            self.close_connection = True

    def serve(self, item, limit=None):
        start = self._start(item)
        size = len(item.body)
        headers = {"Content-Length": size - start, **item.headers}
        if start >= size > 0:
            self.head(416, {"Content-Length": 0})
            return
        if start:
            headers["Content-Range"] = f"bytes {start}-{size - 1}/{size}"
        self.head(206 if start else 200, headers)
        body = item.body[start:] if limit is None else item.body[start:limit]
        self.send(body)
        self.close_connection |= limit is not None

    def _start(self, item):
        asked = re.match(r"bytes=(\d+)-", self.headers.get("Range") or "")
        known = self.headers.get("If-Range")
        same = known in (None, *item.headers.values())
        return int(asked[1]) if asked and same else 0

    def head(self, code, headers):
        headers = dict(headers)
        self.send_response_only(code)
        self.send_header("Server", headers.pop("Server", "loopback"))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.end_headers()

    def send(self, body):
        if self.command == "GET":
            self.wfile.write(body)
            self.wfile.flush()
            self.server.sent += len(body)

    def log_message(self, *args):
        pass


class Loopback(http.server.ThreadingHTTPServer):
    """The server; `with Loopback() as server` runs it.

    Attributes:
        items: Path -> `Item`.
        log: Requests so far: method, path, headers.
        sent: Bytes of bodies so far.
        repositories: Starts of the paths of the hub's.
    """

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.items, self.log, self.sent = {}, [], 0
        self.repositories = []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._thread = threading.Thread(target=self.serve_forever, args=(0.01,))

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *args):
        self.shutdown()
        self._thread.join()
        self.server_close()

    def handle_error(self, request, client_address):
        pass

    def add(self, path, body, *faults, **headers):
        """Puts a file there, with an ETag unless told otherwise."""
        tag = hashlib.sha1(body).hexdigest()[:8]
        self.items[path] = Item(body, {"ETag": f'"{tag}"', **headers}, faults)
        return self.items[path]

    def add_bucket(self, path, body, *faults):
        """Puts a file there as Google's buckets serve it."""
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        hashes = f"crc32c=AAAAAA==,md5={md5}"
        return self.add(path, body, *faults, x_goog_hash=hashes)

    def add_repository(self, repo, files):
        """Puts files there as the hub serves them; bytes are large ones."""
        headers = {"X-Repo-Commit": COMMIT}
        for name, body in files.items():
            tag = hashlib.sha256(body).hexdigest()
            large = {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": len(body)}
            for revision in ("main", COMMIT):
                path = f"/{repo}/resolve/{revision}/{name}"
                more = large if not name.endswith(".json") else {}
                self.add(path, body, **headers, **more)
        self.repositories.append(f"/{repo}/")

    def missing(self, path):
        """What a path that is not there is answered with."""
        headers = {"Content-Length": 0}
        if path.startswith(tuple(self.repositories)):
            headers |= {"X-Error-Code": "EntryNotFound"}
            headers |= {"X-Repo-Commit": COMMIT}
        elif self.repositories:
            headers |= {"X-Error-Code": "RepoNotFound"}
        return 404, headers

    def gets(self, path):
        """Headers of every GET of a path."""
        return [h for m, p, h in self.log if (m, p) == ("GET", path)]
