"""Status codes and execution units of the runtime API (aws-neuron-sdk v2.32.0, neuron-runtime/api/nrt_status.rst, nrt-async)."""

from __future__ import annotations

import enum

from ..isa.errors import ProgramError


class NrtStatus(enum.IntEnum):
    """NRT_STATUS values, without their NRT_ prefix."""

    SUCCESS = 0
    FAILURE = 1
    INVALID = 2
    INVALID_HANDLE = 3
    RESOURCE = 4
    TIMEOUT = 5
    HW_ERROR = 6
    QUEUE_FULL = 7
    LOAD_NOT_ENOUGH_NC = 9
    UNSUPPORTED_NEFF_VERSION = 10
    FAIL_HOST_MEM_ALLOC = 11
    UNINITIALIZED = 13
    CLOSED = 14
    QUEUE_EMPTY = 15
    EXEC_UNIT_UNRECOVERABLE = 101
    EXEC_BAD_INPUT = 1002
    EXEC_COMPLETED_WITH_NUM_ERR = 1003
    EXEC_NC_BUSY = 1005
    EXEC_OOB = 1006
    COLL_PENDING = 1100


class XuType(enum.IntEnum):
    """Kinds of execution unit, as the 3.0 enum numbers them."""

    TENSOR_OP = 0
    COMPUTE = 1
    COLLECTIVES = 2

    @property
    def queues(self) -> int:
        """Queues of this kind on each core."""
        return {XuType.TENSOR_OP: 2, XuType.COMPUTE: 1, XuType.COLLECTIVES: 3}[self]


class InstanceFamily(enum.IntEnum):
    """NRT_INSTANCE values of the families that chips belong to, without their prefix."""

    UNKNOWN = 0
    TRN1 = 2
    INF2 = 4
    TRN2 = 5
    TRN3 = 14


INSTANCE_SIZE_UNKNOWN = 9  # NRT_INSTANCE_SIZE_UNKNOWN


class NrtError(ProgramError):
    """A call of a Python layer ended with a status other than SUCCESS; `status` tells which."""

    def __init__(self, where: str, status: NrtStatus, required: str = "NRT_SUCCESS") -> None:
        super().__init__(where, f"NRT_{status.name} ({int(status)})", required, "neuron-runtime API")
        self.status = status

    def at(self, where: str) -> NrtError:
        """The same error, placed."""
        return NrtError(f"{where} {self.where}".strip(), self.status, self.required)


def check(what: str, status: NrtStatus | None) -> None:
    """NrtError unless the status is SUCCESS; a request that left none has failed."""
    if status is not NrtStatus.SUCCESS:
        raise NrtError(what, NrtStatus.FAILURE if status is None else status)
