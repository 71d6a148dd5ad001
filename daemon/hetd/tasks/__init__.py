"""The stored state of each task: its page, the journal of all pages, and recovery."""
