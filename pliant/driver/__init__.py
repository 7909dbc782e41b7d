"""What drives a compilation: the pipeline, its limits, recovery, reporting and stances."""
