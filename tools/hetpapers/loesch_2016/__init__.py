"""loesch-2016: performance-centric scheduling with task migration, re-made."""
