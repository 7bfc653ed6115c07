"""An S3 server of its own process that knows no key: `python -m tests.s3.refusing everything|writing`.

It prints its port. It is no thread of the tests: the library of Delta Lake keeps all threads of its process
waiting while it asks. What may be read is an empty bucket.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from tests.needs import ROOT

Refused = Literal["everything", "writing"]


@contextmanager
def refusing(refused: Refused) -> Iterator[str]:
    """Its address."""
    command = [sys.executable, "-m", "tests.s3.refusing", refused]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    refused: Refused

    def _serve(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused == "everything" or self.command in ("PUT", "POST"):
            self._answer(403, "<Error><Code>InvalidAccessKeyId</Code><Message>no</Message></Error>")
        elif "list-type" in self.path:
            self._answer(200, "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>")
        else:
            self._answer(404, "<Error><Code>NoSuchKey</Code><Message>no</Message></Error>")

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def _answer(self, status: int, text: str) -> None:
        body = b"" if self.command == "HEAD" else text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: standard output is for the port."""


def main(refused: str) -> None:
    handler = type("Handler", (_Handler,), {"refused": refused})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1])
