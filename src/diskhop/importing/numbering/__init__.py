"""Node ids of any kind to numbers from 0, out of core."""
