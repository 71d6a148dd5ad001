"""The applications that come with hetd."""
