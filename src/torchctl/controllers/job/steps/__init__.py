"""The steps of a job: dependencies, workspace, admission, workers. Each says done, waiting or refused, and why."""
