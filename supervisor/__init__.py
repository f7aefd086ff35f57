"""Decides, records and confines. Never imports ``agent``, whose only door is ``supervisor.session.Session.submit``."""
