"""What a terminal shows during and after a run."""
