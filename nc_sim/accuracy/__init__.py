"""Published single measurements beside what the simulator says of them: data in the project, and replayed streams."""
