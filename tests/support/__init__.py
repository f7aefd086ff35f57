"""Helpers that the tests share: what the machine can do, and how to run ``lemni`` for real."""
