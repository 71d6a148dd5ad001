"""The arena: policies side by side on scenarios drawn at random (`hetsim arena`)."""
