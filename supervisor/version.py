"""The version, in one place: read by the build, by ``lemni --version`` (which imports nothing for it), and by the journal."""

VERSION = "0.1.0"
