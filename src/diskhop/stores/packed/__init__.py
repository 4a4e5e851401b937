"""The packed store: each batch's rows written together and read in one piece (DiskGNN)."""
