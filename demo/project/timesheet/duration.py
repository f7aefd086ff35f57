"""Durations as people write them, ``8:30`` or ``45m``, and as seconds."""
import re

CLOCK = re.compile(r"(\d+):([0-5]\d)")
UNITS = re.compile(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def parse(text):
    """Seconds of ``8:30``, ``1h15m`` or ``90s``; ValueError for anything else."""
    if clock := CLOCK.fullmatch(text):
        return int(clock[1]) * 3600 + int(clock[2]) * 60
    units = UNITS.fullmatch(text)
    if not text or not units:
        raise ValueError(f"not a duration: {text!r}")
    hours, minutes, seconds = (int(part or 0) for part in units.groups())
    return hours * 3600 + minutes * 60 + seconds


def show(seconds):
    """``H:MM``, to the nearest minute."""
    hours, rest = divmod(seconds, 3600)
    return f"{hours}:{round(rest / 60):02d}"
