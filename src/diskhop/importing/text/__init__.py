"""Edge lists as text: delimiters, columns, compressed files."""
