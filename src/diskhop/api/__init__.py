"""A function per command of the command line, in a module of the same name: the same words, and a result to look at.

The command line calls these functions and prints what they return. What takes seconds to load is imported by the
functions that need it.
"""
