"""Configuration: options as fields with their rules, and the one place that validates them."""
