"""Sockets of kafka-python that are closed when they cannot be connected."""

from __future__ import annotations

from typing import Any, ClassVar

from kafka.net.inet import KafkaNetSocket


class ClosingSocket(KafkaNetSocket):  # type: ignore[misc]  # kafka-python has no types.
    """Connects directly, as without a proxy: it is chosen by the URL of one.

    kafka-python 3 drops a socket that was refused and does not close it. A client that waits for brokers
    tries again every second, and would run out of files where garbage is not collected so often.
    """

    SCHEMES: ClassVar = ("minirt-closing",)
    URL: ClassVar = "minirt-closing://"

    async def sock_connect(
        self, net: Any, sock: Any, sockaddr: Any, timeout_at: float | None = None
    ) -> Any:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
