"""Composes guard, journal, sandbox and workspace into a session; the only door of the agent."""
