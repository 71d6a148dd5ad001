"""The command line: `commands` parse and print, the other packages do the work."""
