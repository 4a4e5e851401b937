"""Bytes between disk and memory: the engine, atomic files, streams, checksums and fault injection."""
