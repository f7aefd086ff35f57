"""``python -m agent.cli``: the same as ``lemni``."""
from agent.cli.main import entry

if __name__ == "__main__":
    entry()
