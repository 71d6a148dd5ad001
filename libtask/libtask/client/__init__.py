"""What talks to hetd for a user: clients, handles of tasks, executors."""
