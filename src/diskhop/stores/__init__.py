"""Feature stores: one file for each strategy of bringing rows to the model, and a line in STORES."""
