"""What waits in the place of a deferred task."""
