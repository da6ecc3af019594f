"""Triggers, which wait for a job while its task is deferred."""
