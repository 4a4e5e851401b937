"""Building datasets: what is added is checked, sorted and written to files."""
