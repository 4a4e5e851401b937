"""Small implementations of the package's interfaces, which prove that a new one needs no other change."""
