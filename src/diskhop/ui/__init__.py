"""Terminal output during and after a run."""
