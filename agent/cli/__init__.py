"""The command line: reads arguments, calls the composition root, turns values and errors into words and exit codes.

Start-up is part of the product: nothing here is imported before the command that needs it (see ``main``).
"""
