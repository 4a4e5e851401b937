"""Reading rows of hop tables for training: from memory, or from disk in shuffled chunks."""
