"""Clients of hetd: sessions, handles of tasks, executors."""
