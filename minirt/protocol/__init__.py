"""Pure decisions: events and facts in, commands and plans out; no clock, file, process or thread."""
