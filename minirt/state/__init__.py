"""What operators remember: keyed state, the handles users declare, and timers."""
