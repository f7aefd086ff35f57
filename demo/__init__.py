"""The product in a minute: a small project with a failing test, repaired by a scripted model under supervision."""
