"""Models of hop tables: SGC, SIGN and HOGA."""
