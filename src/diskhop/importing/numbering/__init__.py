"""Renumbering of node ids of any kind from 0, out of core."""
