import unittest

from timesheet import duration


class Parse(unittest.TestCase):
    def test_clock(self):
        self.assertEqual(duration.parse("8:30"), 30600)

    def test_units(self):
        self.assertEqual(duration.parse("1h15m"), 4500)
        self.assertEqual(duration.parse("90s"), 90)

    def test_nonsense(self):
        for text in ("", "8:75", "soon", "1d"):
            with self.assertRaises(ValueError):
                duration.parse(text)


class Show(unittest.TestCase):
    def test_whole_minutes(self):
        self.assertEqual(duration.show(4500), "1:15")

    def test_nearest_minute(self):
        self.assertEqual(duration.show(89), "0:01")
        self.assertEqual(duration.show(7199), "2:00")
