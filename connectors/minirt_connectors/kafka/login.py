"""How to log in: options of librdkafka as those of kafka-python."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import Any

from minirt.errors import ConfigurationError

_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_TLS = (
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.key.password",
    "ssl.endpoint.identification.algorithm",
)
_VERIFY = "enable.ssl.certificate.verification"
_SASL = ("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password")


class _Hidden(str):
    """A password that does not show where its holder is logged."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def login_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Raises ConfigurationError for ways to log in that only one of the two clients knows."""
    for name in options:
        if name.startswith(("ssl.", "sasl.")) and name not in (*_TLS, *_SASL):
            raise ConfigurationError(
                f'delivery="direct" cannot make use of the option {name!r}; those that it can are '
                f"{', '.join((*_TLS, *_SASL))}"
            )
    protocol = str(options.get("security.protocol", "PLAINTEXT")).upper()
    found: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(options)
    if protocol.startswith("SASL"):
        mechanism = options.get("sasl.mechanism", options.get("sasl.mechanisms", "GSSAPI"))
        if mechanism not in _MECHANISMS:
            raise ConfigurationError(
                f'delivery="direct" logs in with {", ".join(_MECHANISMS)}, not with {mechanism!r}'
            )
        found["sasl_mechanism"] = mechanism
        found["sasl_plain_username"] = str(options.get("sasl.username", ""))
        found["sasl_plain_password"] = _Hidden(options.get("sasl.password", ""))
    return found


def _tls(options: Mapping[str, Any]) -> ssl.SSLContext:
    place = options.get("ssl.ca.location")
    if place == "probe":
        place = None
    try:
        folder = place is not None and os.path.isdir(place)
        context = ssl.create_default_context(
            cafile=None if folder else place,
            capath=place if folder else None,
            cadata=options.get("ssl.ca.pem"),
        )
        if certificate := options.get("ssl.certificate.location"):
            key, password = options.get("ssl.key.location"), options.get("ssl.key.password")
            context.load_cert_chain(certificate, key, password)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"the ssl options of the Kafka client cannot work: {error}"
        ) from None
    if options.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if str(options.get(_VERIFY, True)).lower() in ("false", "0"):
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
