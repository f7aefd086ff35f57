"""Policy, configuration and bounds: what others decided about a session, read strictly and turned into values."""
