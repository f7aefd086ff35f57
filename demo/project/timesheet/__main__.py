"""``python3 -m timesheet``: a week on standard input, its report on standard output."""
import sys

from timesheet.report import report

sys.stdout.write(report(sys.stdin))
