"""The parts of the site that are made from the source: the reference of Python, commands and errors."""
