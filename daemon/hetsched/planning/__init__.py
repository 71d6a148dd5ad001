"""The mathematics that several policies share. Pure."""
