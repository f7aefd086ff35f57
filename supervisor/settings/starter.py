"""The commented policy that ``lemni policy init`` and the demo write for a repository. Pure: names and texts in, text out."""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

_HEAD = """\
# lemni's policy. On a machine without /etc/lemniscate/policy.yaml this file is the policy; where that file exists,
# this one can only restrict it. Check it with `lemni policy show`.
version: 1

# What holds for every project below unless the project says otherwise.
defaults:
  # exclude: never. ask: you are asked each time (in -p: refused). allow: not asked.
  # What a tool changes stays in the session's own copy of the repository until you accept the diff.
  tools:
    "*": ask

# Only the projects listed here can be opened.
projects:
"""

_PROJECT = """\
  - id: {id}
    roots: [{root}]
    tools: {{Read: allow, List: allow, Search: allow, Write: allow, Edit: allow, Bash: allow, "*": ask}}
    # Commands that run without asking, word by word; a final * stands for any further words.
    # With Bash at allow, a command that is not listed asks (in -p: is refused), and so do pipes, chains (&&, ;) and
    # expansions, whatever is listed.
    commands:
{commands}
    # More of them, as shipped sets: read-only, build, test, format.
    commandSets: [read-only]
    # contextExclusions: ["fixtures/private/**"]    # beside .env*, secrets/, .ssh/, *.pem, *.key, *.p12, *.pfx and *.crt
    # budgets: {{actions: 150, minutes: 45, extensions: 5}}
    # limits: {{memory: 4GiB, cpus: 2, processes: 512, cpuSeconds: 1800, disk: 4GiB}}
"""

_NONE_FOUND = '      # - "make test"    # no test command was recognised in this repository: add yours'


def project_entry(root: str, files: Mapping[str, str]) -> str:
    """The entry of one repository for the list ``projects``. ``files``: top-level names to text ("" where not needed)."""
    found = test_commands(files)
    lines = "\n".join(f"      - {json.dumps(command)}" for command in found)
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", root.rstrip("/").rpartition("/")[2]).strip("-") or "project"
    commands = lines if found else "      []\n" + _NONE_FOUND
    return _PROJECT.format(id=json.dumps(name), root=json.dumps(root), commands=commands)


def starter_text(entry: str) -> str:
    """A whole policy file that holds one project."""
    return _HEAD + entry


def test_commands(files: Mapping[str, str]) -> list[str]:
    """Patterns for the test commands that a repository's top-level files show, most specific first."""
    found: list[str] = []
    for applies, patterns in _DETECTORS:
        if applies(files):
            found += [pattern for pattern in patterns if pattern not in found]
    return found


# The files whose text tells more than their name: the caller reads these.
READ_FILES = ("Makefile", "makefile", "GNUmakefile", "package.json", "pyproject.toml", "setup.cfg")


def _target(name: str) -> Callable[[Mapping[str, str]], bool]:
    rule = re.compile(rf"^{name}\s*:(?!=)", re.MULTILINE)
    return lambda files: any(rule.search(files.get(makefile, "")) for makefile in READ_FILES[:3])


def _any(*names: str) -> Callable[[Mapping[str, str]], bool]:
    return lambda files: any(name in files for name in names)


def _script(name: str) -> Callable[[Mapping[str, str]], bool]:
    def applies(files: Mapping[str, str]) -> bool:
        try:
            package = json.loads(files.get("package.json", ""))
        except (ValueError, RecursionError):
            return False
        scripts = package.get("scripts") if isinstance(package, dict) else None
        return isinstance(scripts, dict) and name in scripts

    return applies


def _python(files: Mapping[str, str]) -> bool:
    return _any("pyproject.toml", "setup.py", "setup.cfg", "pytest.ini", "tox.ini", "conftest.py")(files) or (
        _any("tests", "test")(files) and any(name.endswith(".py") or name == "requirements.txt" for name in files)
    )


_DETECTORS: tuple[tuple[Callable[[Mapping[str, str]], bool], tuple[str, ...]], ...] = (
    (_target("test"), ("make test",)),
    (_target("check"), ("make check",)),
    (_python, ("pytest *", "python -m pytest *", "python3 -m pytest *", "python3 -m unittest *")),
    (_any("tox.ini"), ("tox *",)),
    (_any("noxfile.py"), ("nox *",)),
    (_script("test"), ("npm test *", "npm run test *")),
    (_script("lint"), ("npm run lint *",)),
    (_any("Cargo.toml"), ("cargo test *", "cargo build *", "cargo check *")),
    (_any("go.mod"), ("go test *", "go build *", "go vet *")),
    (_any("pom.xml"), ("mvn test *",)),
    (_any("build.gradle", "build.gradle.kts"), ("gradle test *", "./gradlew test *")),
    (_any("CMakeLists.txt"), ("cmake --build *", "ctest *")),
    (_any("meson.build"), ("meson test *",)),
    (_any("Gemfile"), ("bundle exec rake test *", "bundle exec rspec *")),
    (_any("composer.json"), ("composer test *", "vendor/bin/phpunit *")),
    (_any("mix.exs"), ("mix test *",)),
)
