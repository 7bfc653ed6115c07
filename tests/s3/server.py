"""An S3 server of its own process: moto over HTTP. Prints its port, and runs until it is killed.

One request at a time: moto looks and then writes, so requests side by side would break the promise of
a conditional create, which real servers keep.
"""

from __future__ import annotations

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server


class _Quiet(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: object) -> None:
        """Say nothing: standard output is for the port."""


def main() -> None:
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, request_handler=_Quiet)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
