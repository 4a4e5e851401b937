"""Any model, layer by layer: batches of all nodes through the ordinary pipeline."""
