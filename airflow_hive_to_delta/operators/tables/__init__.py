"""The tables of a task: their definitions, files and outcomes, as they pass from one task to the next."""
