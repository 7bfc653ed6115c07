"""An HTTP endpoint that Prometheus reads: `http://HOST:PORT/metrics`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from minirt.errors import ConfigurationError
from minirt.monitoring.catalogue import CATALOGUE
from minirt.monitoring.figures import JobFigures
from minirt.monitoring.latency import BOUNDS_S, LatencyHistogram
from minirt.monitoring.logs import logger_of
from minirt.threads import start_thread
from minirt.wording import named

try:
    from prometheus_client import CollectorRegistry, make_wsgi_app
    from prometheus_client.core import (
        CounterMetricFamily,
        GaugeMetricFamily,
        HistogramMetricFamily,
    )
    from prometheus_client.registry import Collector
except ImportError as error:
    raise ConfigurationError(
        f"{named('options.metrics_port')} needs the package prometheus_client: pip install "
        "'minirt[metrics]'"
    ) from error

logger = logger_of("metrics")

_REQUEST_S_MAX = 10.0
_CLOSE_POLL_S = 0.05

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


_KINDS: Mapping[str, Callable[..., Any]] = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}


class JobCollector(Collector):
    """The newest figures of a job at each reading, as the catalogue names them."""

    def __init__(self, figures: Callable[[], JobFigures]) -> None:
        self._figures = figures

    def collect(self) -> Iterator[Family]:
        figures = self._figures()
        for metric in CATALOGUE:
            family = _KINDS[metric.kind](metric.name, metric.meaning, labels=metric.labels)
            for labels, value in metric.samples(figures):
                named = {"job": figures.name, **labels}
                own = [named[label] for label in metric.labels]
                if isinstance(value, LatencyHistogram):
                    family.add_metric(own, _buckets(value), value.sum_s)
                else:
                    family.add_metric(own, value)
            yield family


def _buckets(histogram: LatencyHistogram) -> list[tuple[str, float]]:
    """As Prometheus counts: each bucket holds those before it."""
    counts = [(f"{bound:g}", float(histogram.below(bound))) for bound in BOUNDS_S]
    return [*counts, ("+Inf", float(histogram.count))]


class MetricsEndpoint:
    """Listens from its construction until it is closed.

    Port 0 is any that is free. Raises ConfigurationError if it cannot listen there.
    """

    def __init__(self, host: str, port: int, figures: Callable[[], JobFigures]) -> None:
        registry = CollectorRegistry()
        registry.register(JobCollector(figures))
        try:
            self._server = make_server(
                host, port, make_wsgi_app(registry), server_class=_Server, handler_class=_Handler
            )
        except (OSError, UnicodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise ConfigurationError(
                f"metrics cannot be offered at {host}:{port}: {reason}; give another "
                f"{named('options.metrics_host')} or {named('options.metrics_port')}, where 0 is "
                "any port that is free"
            ) from error
        self.url = f"http://{host}:{self._server.server_port}/metrics"
        serve = partial(self._server.serve_forever, _CLOSE_POLL_S)
        self._thread = start_thread("minirt-metrics", serve, self._on_error)

    def _on_error(self, error: BaseException) -> None:
        """The job goes on without."""
        logger.error("no more metrics are offered at %s: %s", self.url, error, exc_info=error)

    def close(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = _REQUEST_S_MAX

    def log_message(self, format: str, *args: object) -> None:
        """Readings are not worth a line each."""
