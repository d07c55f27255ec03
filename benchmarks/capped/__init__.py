"""A disk of a set speed: a loop device behind a cgroup."""
