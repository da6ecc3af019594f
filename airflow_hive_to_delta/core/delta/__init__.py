"""The Delta log: actions, commits, checkpoints, replay, and the tables it describes."""
