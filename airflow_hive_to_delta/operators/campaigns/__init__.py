"""The tasks of a campaign: plan, approve, plan a wave, work on its units, and close it."""
