"""Task descriptions made of what users write: programs, scripts, batch files, arrays."""
