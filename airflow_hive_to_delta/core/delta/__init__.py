"""The Delta log: its actions, commits and checkpoints, and the state of a table that they make up."""
