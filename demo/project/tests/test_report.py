import unittest

from timesheet.report import report


class Report(unittest.TestCase):
    def test_days_and_total(self):
        week = ["mon 8:30 review", "# a comment", "", "tue 45m mail", "mon 1:00 talk"]
        self.assertEqual(report(week), "mon      9:30\ntue      0:45\ntotal   10:15\n")

    def test_a_day_without_duration_is_refused(self):
        with self.assertRaisesRegex(ValueError, "line 1"):
            report(["mon"])
