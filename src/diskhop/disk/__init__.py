"""What reads cost on this disk: the model, how it is probed, how bandwidth is measured."""
