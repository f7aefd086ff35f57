"""Converses and proposes. Holds nothing that runs anything: every call goes through the session."""
