"""The report of a week: hours of each day, and their sum."""
from timesheet import duration


def report(lines):
    """Text of the report for lines of ``DAY DURATION [WHAT]``; empty lines and ``#`` comments are skipped."""
    days = {}
    for number, line in enumerate(lines, 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) < 2:
            raise ValueError(f"line {number}: a day and a duration are needed")
        day = words[0].lower()
        days[day] = days.get(day, 0) + duration.parse(words[1])
    rows = [f"{day:<6}{duration.show(seconds):>7}\n" for day, seconds in days.items()]
    return "".join(rows) + f"{'total':<6}{duration.show(sum(days.values())):>7}\n"
