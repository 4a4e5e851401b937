"""Ranking test edges among all or sampled candidates."""
