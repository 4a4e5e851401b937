"""Bytes between disk and memory: the engine, the device's measure, files that appear whole, faults on purpose."""
