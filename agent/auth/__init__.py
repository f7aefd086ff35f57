"""Who the person is."""
