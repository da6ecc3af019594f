"""Running the jobs of a task: submitting, following and finding them again."""
