"""The version, in one place: read by the build and by ``lemni --version``, which must not import anything for it."""

VERSION = "0.1.0"
