"""Does everything and decides nothing: waits for events, asks the protocol, carries out its commands."""
