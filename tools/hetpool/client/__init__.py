"""The side of users' programs: `Pool` and its tasks."""
