"""Adds up what a week of work came to."""
