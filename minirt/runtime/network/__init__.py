"""Between processes: trunks that carry the frames of many channels, sockets, TLS, packets."""
