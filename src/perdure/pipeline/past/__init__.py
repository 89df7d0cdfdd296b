"""A process beside the broker that gives pages of an archive to clients that ask for the past."""
