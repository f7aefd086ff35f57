"""Decisions: what may run, what asks, what stops a session. Pure: no clock, no file, no socket."""
