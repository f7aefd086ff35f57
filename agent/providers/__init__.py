"""Model servers behind one interface."""
