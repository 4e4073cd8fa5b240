"""Eager, fused and compiled dispatch of one computation, side by side with published measurements."""
