"""What a running job can be asked from outside its program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from minirt.clock import SYSTEM_CLOCK
from minirt.errors import ConfigurationError, MinirtError
from minirt.monitoring.logs import logger_of
from minirt.operations.control import ControlSocket
from minirt.operations.details import details
from minirt.operations.exchange import Plain
from minirt.operations.port import ControlPort
from minirt.operations.registry import Entry, Registry

if TYPE_CHECKING:
    from minirt.protocol.savepoint_requests import Savepoint
    from minirt.runtime.coordinator.lease_holder import LeaseHolder
    from minirt.runtime.program.job import Job

logger = logger_of("job")

_ACTIONS = frozenset(("savepoint", "stop", "cancel", "rescale"))

Answer = Callable[[Mapping[str, Any]], Plain]


class ControlDesk:
    """Registers a job and answers for it until it is closed, on its host and at its control port.

    Registration is best effort: a job that cannot be registered runs all the same, and a warning says
    why it cannot be found. Nobody is answered once another program runs the job, which `lease` knows.
    """

    def __init__(
        self, job: Job, port: ControlPort | None = None, lease: LeaseHolder | None = None
    ) -> None:
        self._job = job
        self._lease = lease
        self._answers: dict[str, Answer] = {
            "status": self._status,
            "figures": self._figures,
            "storage": self._storage,
            "cancel": self._cancel,
            "savepoint": self._savepoint,
            "stop": self._stop,
            **details(job, lambda: sorted(self._answers)),
        }
        reached = () if port is None else (port.token, port.url)
        self._entry = Entry.new(job.name, SYSTEM_CLOCK.now(), *reached)
        self._port = port
        self._registry: Registry | None = None
        self._socket: ControlSocket | None = None
        try:
            self._registry = Registry.of_user()
            path = self._registry.socket_path(self._entry)
            self._socket = ControlSocket(path, self._entry.token, self._answer)
            self._registry.add(self._entry)
        except (OSError, MinirtError) as error:
            self._leave()
            logger.warning("`minirt jobs` will not show job %r: %s", job.name, error)
        if port is not None:
            port.open(self._entry.id, self._answer)

    @property
    def reached_by(self) -> str | None:
        """How other hosts reach the job, in words; None if they cannot."""
        if self._port is None:
            return None
        where = (
            ""
            if self._registry is None
            else f", with the token in {self._registry.token_path(self._entry)}"
        )
        return f"other hosts reach the job by {self._port.url}{where}"

    def offer(self, request: str, answer: Answer) -> None:
        """Answer a further request."""
        self._answers[request] = answer

    def close(self) -> None:
        """Send the last answers and leave the registry."""
        if self._port is not None:
            self._port.close()
        self._leave()

    def _leave(self) -> None:
        if self._socket is not None:
            self._socket.close()
        if self._registry is not None:
            try:
                self._registry.remove(self._entry)
            except OSError as error:
                logger.warning("job %r stays registered: %s", self._entry.name, error)

    def _answer(self, request: Plain) -> Plain:
        wanted = request.get("request")
        answer = self._answers.get(wanted) if isinstance(wanted, str) else None
        if answer is None:
            raise ConfigurationError(f"job {self._job.name!r} cannot {wanted}")
        self._check_lease(wanted)  # Who was replaced while it was frozen does not act.
        try:
            return answer(request)
        finally:  # Again: this program may be frozen, and replaced, while it makes the answer.
            self._check_lease(wanted)

    def _check_lease(self, wanted: object) -> None:
        if self._lease is not None:
            self._lease.check(surely=wanted in _ACTIONS)

    def _status(self, request: Mapping[str, Any]) -> Plain:
        return {
            **self._entry.told,
            "status": self._job.status.value,
            "restarts": self._job.restarts,
            "metrics": self._job.metrics_url,
        }

    def _figures(self, request: Mapping[str, Any]) -> Plain:
        return self._job.figures.to_plain()

    def _storage(self, request: Mapping[str, Any]) -> Plain:
        return {"storage": self._job.storage}

    def _cancel(self, request: Mapping[str, Any]) -> Plain:
        self._job.cancel(reason="`minirt cancel`")
        self._job.wait_for_end()
        return self._status(request)

    def _savepoint(self, request: Mapping[str, Any]) -> Plain:
        return _to_plain(self._job.savepoint(_text(request, "path"), _text(request, "mode")))

    def _stop(self, request: Mapping[str, Any]) -> Plain:
        path, mode = _text(request, "path"), _text(request, "mode")
        if request.get("drain") is True:
            if mode is not None:
                raise ConfigurationError("--mode has no effect with --drain")
            return _to_plain(self._job.drain(path, reason="`minirt stop --drain`"))
        return _to_plain(self._job.stop(path, mode, reason="`minirt stop`"))


def _text(request: Mapping[str, Any], name: str) -> str | None:
    value = request.get(name)
    if value is not None and not isinstance(value, str):
        raise ConfigurationError(f"{name} is text, not {value!r}")
    return value


def _to_plain(savepoint: Savepoint) -> Plain:
    return asdict(savepoint)
