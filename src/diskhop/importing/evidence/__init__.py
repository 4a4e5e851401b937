"""Evidence of what a file is: which files belong together, headers, delimiters, columns."""
