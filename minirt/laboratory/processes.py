"""What a process and all below it use: CPU time and resident memory."""

from __future__ import annotations

import psutil


class ProcessTree:
    """The figures are those of the last `look`."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self.cpu_s = 0.0
        self.rss_bytes = 0
        self.peak_rss_bytes = 0
        """The most that a look has found. Whoever sets it to 0 measures anew."""

    def look(self) -> None:
        try:
            tree = [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return
        cpu_s, resident = 0.0, 0
        for process in tree:
            try:
                # Includes what its ended children used, so that a worker that was killed still counts.
                cpu_s += sum(process.cpu_times()[:4])
                resident += process.memory_info().rss
            except psutil.Error:
                continue
        # A process that ends just now is missing in a single look.
        self.cpu_s = max(self.cpu_s, cpu_s)
        self.rss_bytes = resident
        self.peak_rss_bytes = max(self.peak_rss_bytes, resident)
