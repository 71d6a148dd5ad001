"""The launcher: one user's fork server and the supervisor of that user's workers."""
