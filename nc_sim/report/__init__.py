"""Views of a result for people; no engine is involved."""
