"""Where the time goes: views of a finished run. Pure functions over table and timeline, the same for both engines."""

from .lines import Part, stalls
from .movement import Overlap, Rows, dma_rows, overlap
from .path import Segment, Share, critical_path, shares
from .spare import Slack, slack

__all__ = ["Overlap", "Part", "Rows", "Segment", "Share", "Slack", "critical_path", "dma_rows", "overlap", "shares", "slack", "stalls"]
