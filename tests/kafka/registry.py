"""A schema registry of the tests: what the client of Confluent asks for, over HTTP, in memory."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


class FakeRegistry:
    """Ids count up; a subject that is `frozen` takes no schema. Clients must say `login`, if any."""

    def __init__(self, login: str | None = None) -> None:
        self.schemas: list[dict[str, Any]] = []
        self.subjects: dict[str, list[int]] = {}
        self.frozen: set[str] = set()
        self.asked: list[str] = []
        self._login = login
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry._serve(self, None)

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                registry._serve(self, json.loads(self.rfile.read(length)))

            def log_message(self, format: str, *args: Any) -> None:
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, subject: str, schema: dict[str, Any]) -> int:
        """The id of a schema, registered if it is new."""
        known = {key: schema.get(key) for key in ("schema", "schemaType", "references")}
        if known not in self.schemas:
            self.schemas.append(known)
        id = self.schemas.index(known) + 1
        own = self.subjects.setdefault(subject, [])
        if id not in own:
            own.append(id)
        return id

    def _serve(self, request: BaseHTTPRequestHandler, body: Any) -> None:
        url = urlsplit(request.path)
        self.asked.append(f"{request.command} {url.path}")
        said = request.headers.get("Authorization")
        wanted = self._login and "Basic " + base64.b64encode(self._login.encode()).decode()
        if wanted and said != wanted:
            status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
        else:
            parts = [unquote(part) for part in url.path.strip("/").split("/")]
            status, answer = self._answer(request.command, parts, body, parse_qs(url.query))
        data = json.dumps(answer).encode()
        request.send_response(status)
        request.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        request.send_header("Content-Length", str(len(data)))
        request.end_headers()
        request.wfile.write(data)

    def _answer(
        self, method: str, parts: list[str], body: Any, query: dict[str, list[str]]
    ) -> tuple[int, Any]:
        match method, parts:
            case "GET", ["schemas", "types"]:
                return 200, ["AVRO", "PROTOBUF"]
            case "GET", ["schemas", "ids", id]:
                if 0 < int(id) <= len(self.schemas):
                    return 200, self._shown(int(id))
                return 404, {"error_code": 40403, "message": "Schema not found"}
            case "POST", ["subjects", subject, "versions"]:
                if subject in self.frozen:
                    return 409, {
                        "error_code": 409,
                        "message": "Schema being registered is incompatible",
                    }
                return 200, {"id": self.add(subject, body)}
            case "POST", ["subjects", subject]:
                known = {key: body.get(key) for key in ("schema", "schemaType", "references")}
                own = self.subjects.get(subject, [])
                for version, id in enumerate(own, 1):
                    if self.schemas[id - 1] == known:
                        return 200, self._version(subject, version)
            case "GET", ["subjects", subject, "versions", version] if self.subjects.get(subject):
                own = self.subjects[subject]
                return 200, self._version(
                    subject, len(own) if version == "latest" else int(version)
                )
        return 404, {"error_code": 40401, "message": "Subject not found"}

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        id = self.subjects[subject][version - 1]
        return {**self._shown(id), "subject": subject, "version": version, "id": id}

    def _shown(self, id: int) -> dict[str, Any]:
        return {key: value for key, value in self.schemas[id - 1].items() if value is not None}
