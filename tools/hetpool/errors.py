"""Errors of a pool, in addition to those of `libtask.errors`."""

from __future__ import annotations

from libtask.errors import DaemonUnreachableError, HetError, NotAllowedError


class PoolUnreachableError(DaemonUnreachableError):
    """No scheduler of a pool answers."""


class CertificateError(NotAllowedError):
    """The pool refuses the certificate, or none was given."""


class InputLostError(HetError):
    """No node that is present has an input file of the job."""

    retry = True
    code = "input-lost"
