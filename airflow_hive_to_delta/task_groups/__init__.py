"""A whole migration in one call, and the syncs after it."""
