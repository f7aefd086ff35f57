"""The tools that the model is offered: one file each, a schema and strict arguments to a call."""
