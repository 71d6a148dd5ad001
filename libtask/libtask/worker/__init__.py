"""What executes tasks for hetd: workers, and the launcher that makes and watches them."""
