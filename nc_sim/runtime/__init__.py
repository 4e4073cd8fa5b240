"""The runtime layer: programs dispatched onto simulated cores as the real runtime does it, with host time.

Docs: docs/runtime.md. Host threads, execution queues and cores are processes of one simulation; a core executes the
timelines that the core model gives.
"""

from .api import Ret, Runtime
from .completion import NRTA_SEQ_GET_SEQ_NUM, NRTA_SEQ_GET_XU_ID
from .host import HostProfile
from .status import NrtError, NrtStatus, XuType

__all__ = ["NRTA_SEQ_GET_SEQ_NUM", "NRTA_SEQ_GET_XU_ID", "HostProfile", "NrtError", "NrtStatus", "Ret", "Runtime", "XuType"]
