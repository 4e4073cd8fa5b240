"""Traces in and out: hardware profiles as programs, and nc-sim's own hardware trace."""
