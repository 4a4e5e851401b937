"""Kernels for a GPU, each with a reference in plain torch that it equals.

Triton comes with torch's builds for CUDA. Without it, and on other devices, the references run. TRITON_INTERPRET=1 runs
the kernels on the CPU.
"""
