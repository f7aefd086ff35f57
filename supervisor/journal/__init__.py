"""The record of what was proposed, decided and done: append-only, hash-chained, without content."""
