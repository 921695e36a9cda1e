r"""The document's solver, faithfully: cuSPARSE and cuBLAS, driven from the host.

.. code-block:: python

    context = Context()
    A = SparseMatrix.from_csc(context, csc)
    result = Solver(context).solve(A, b, x, SolverOptions(atol=1e-6, btol=1e-6))

A is held twice, by rows and by columns (*dual CSR*), so that both products are not transposed;
where the second copy does not fit, one format serves both.  An iteration is

``v /= alpha; u = A v - alpha u; |u|; hbar, x, h updated; |x|`` — the host waits —
``u /= beta; v = A'u - beta v; |v|`` — the host waits —

by ``cusparseSpMV`` with beta (in place), ``cublasSnrm2``, ``cublasSscal``, and the fused kernel of
``kernels/lsmr_update.cu``.  The next product is enqueued before the host computes the scalars, and
the norm of x comes with that of the next u, so the host waits twice an iteration.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self

import numpy as np

from asyncsparse_lab.errors import InputError
from asyncsparse_lab.lsmr.problem import PreparedMatrix, array_module, is_sparse

Formats = Literal["auto", "dual", "single"]
MEMORY_SHARE = 0.8
"""A second copy of A may take this part of the memory that is free."""


@dataclass(frozen=True, slots=True)
class SolverOptions:
    """When to stop, and which of the document's variants runs.

    Attributes
    ----------
    atol, btol, conlim, damp : float
        As in :func:`asyncsparse_lab.lsmr.lsmr`.
    max_iterations : int
        Iteration limit.
    fused : bool
        Update hbar and x in one kernel; otherwise in two.
    float4 : bool
        Update four elements a thread where all arrays are aligned to 16 bytes.
    deterministic : bool
        Products by the algorithm that gives the same bits on every run; needs both formats.
    """

    atol: float = 1e-6
    btol: float = 1e-6
    max_iterations: int = 5000
    damp: float = 0.0
    conlim: float = 1e8
    fused: bool = True
    float4: bool = False
    deterministic: bool = False


class Context:
    """A stream, handles of the libraries, and the workspaces that solves reuse.

    Parameters
    ----------
    stream : cupy.cuda.Stream, optional
        By default the current one.

    Raises
    ------
    DeviceError
        There is no GPU of compute capability 8.0 or later.
    UnsupportedError
        A library is not installed.
    """

    def __init__(self, stream: Any | None = None) -> None:
        import cupy

        from asyncsparse_lab.gpu.device import require_gpu
        from asyncsparse_lab.lsmr.vendor import Blas, Sparse

        self.facts = require_gpu((8, 0))
        cupy.cuda.runtime.free(0)  # makes the primary context
        self.stream = cupy.cuda.get_current_stream() if stream is None else stream
        self.pool = cupy.cuda.MemoryPool()
        self.sparse = Sparse(self.stream)
        self.blas = Blas(self.stream, device_scalars=False)
        self.norms = Blas(self.stream, device_scalars=True)
        self._buffers: dict[str, Any] = {}

    def allocate(self, count: int, dtype: Any) -> Any:
        """Return a new device array from the pool."""
        import cupy

        with cupy.cuda.using_allocator(self.pool.malloc):
            return cupy.empty(count, dtype=dtype)

    def buffer(self, name: str, count: int, dtype: Any) -> Any:
        """Return the workspace of a name with ``count`` entries; it is kept and reused."""
        held = self._buffers.get(name)
        if held is None or held.size < count or held.dtype != dtype:
            held = self._buffers[name] = self.allocate(count, dtype)
        return held[:count]

    @property
    def nbytes(self) -> int:
        """Device memory in use from the pool, in bytes."""
        return int(self.pool.used_bytes())

    def synchronize(self) -> None:
        """Wait for all that was enqueued."""
        self.stream.synchronize()

    def __copy__(self) -> Self:
        """Refuse: handles and workspaces have one owner."""
        raise InputError("a Context has one owner: pass it on, do not copy it")

    def __deepcopy__(self, memo: Any) -> Self:
        """Refuse, as :meth:`__copy__`."""
        return self.__copy__()


class DeviceMatrix(PreparedMatrix):
    """A matrix in FP32 on the device of a context.

    Attributes
    ----------
    context : Context
        Owner of the memory.
    shape : (int, int)
        m and n.
    formats : str
        How A is held: ``dual``, ``single`` or ``dense``.
    """

    backend = "document"
    dtype = np.dtype(np.float32)
    scaled = False

    def __init__(self, context: Context, shape: tuple[int, int], formats: str) -> None:
        self.context, self.shape, self.formats = context, shape, formats

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        raise NotImplementedError

    def product(
        self, transposed: bool, alpha: Any, x: Any, beta: Any, y: Any, *, deterministic: bool
    ) -> Any:
        """Return a call that enqueues ``y = alpha A x + beta y``, or with A transposed."""
        raise NotImplementedError

    def to_array(self) -> Any:
        """Return A as CuPy has it: a sparse matrix by rows, or a dense array."""
        raise NotImplementedError


class SparseMatrix(DeviceMatrix):
    """A by rows and by columns, or in one of the two; made by :meth:`from_csc` and its kin."""

    def __init__(
        self, context: Context, shape: tuple[int, int], by_rows: Any | None, by_columns: Any | None
    ) -> None:
        dual = by_rows is not None and by_columns is not None
        super().__init__(context, shape, "dual" if dual else "single")
        self._by_rows, self._by_columns = by_rows, by_columns

    @classmethod
    def from_csc(cls, context: Context, matrix: Any, formats: Formats = "auto") -> SparseMatrix:
        """Build from a CSC matrix of SciPy or CuPy, whose arrays are A transposed by rows.

        Parameters
        ----------
        formats : {"auto", "dual", "single"}
            Both formats, or the given one alone; ``auto`` takes both if they fit.

        Raises
        ------
        InputError
            It is no sparse matrix of real numbers, or too large for 32-bit indices.
        """
        return cls._build(context, matrix, "csc", formats)

    @classmethod
    def from_csr(cls, context: Context, matrix: Any, formats: Formats = "auto") -> SparseMatrix:
        """Build from a CSR matrix of SciPy or CuPy; see :meth:`from_csc`."""
        return cls._build(context, matrix, "csr", formats)

    @classmethod
    def from_coo(cls, context: Context, matrix: Any, formats: Formats = "auto") -> SparseMatrix:
        """Build from a COO matrix of SciPy or CuPy; see :meth:`from_csc`."""
        return cls._build(context, matrix, "csr", formats)

    @classmethod
    def _build(cls, context: Context, matrix: Any, given: str, formats: Formats) -> SparseMatrix:
        from cupyx.scipy import sparse

        from asyncsparse_lab.gpu.device import free_memory

        check_csr(matrix)
        first = (matrix.tocsc() if given == "csc" else matrix.tocsr()).astype(np.float32)
        if array_module(first) is np:
            first = (sparse.csc_matrix if given == "csc" else sparse.csr_matrix)(first)
        other = None
        needed = csr_bytes(matrix.shape, int(matrix.nnz), by_rows=given == "csc")
        if choose_formats(formats, needed, free_memory()) == "dual":
            other = first.tocsr() if given == "csc" else first.tocsc()
        pair = (other, first) if given == "csc" else (first, other)
        by_rows, by_columns = (None if one is None else _arrays(one) for one in pair)
        return cls(context, tuple(matrix.shape), by_rows, by_columns)

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        held = [one for one in (self._by_rows, self._by_columns) if one is not None]
        return int(sum(array.nbytes for one in held for array in one))

    def product(
        self, transposed: bool, alpha: Any, x: Any, beta: Any, y: Any, *, deterministic: bool
    ) -> Any:
        """Return a call that enqueues ``y = alpha A x + beta y``, or with A transposed.

        Raises
        ------
        InputError
            ``deterministic`` with a single format: cuSPARSE has no such transposed product.
        """
        from asyncsparse_lab.lsmr import vendor

        if deterministic and self.formats == "single":
            raise InputError("deterministic=True with a single format: build A with formats='dual'")
        csr, stored_shape, is_transposed = self._stored(transposed)
        return self.context.sparse.product(
            csr,
            stored_shape,
            vendor.TRANSPOSE if is_transposed else vendor.NON_TRANSPOSE,
            alpha,
            x,
            beta,
            y,
            vendor.SPMV_DETERMINISTIC if deterministic else vendor.SPMV_DEFAULT,
            lambda size: self.context.allocate(size, np.uint8),
        )

    def _stored(self, transposed: bool) -> tuple[Any, tuple[int, int], bool]:
        """Return CSR arrays for a product, their shape, and whether to transpose them."""
        m, n = self.shape
        # A by columns is A transposed by rows.
        by_rows, by_columns = (self._by_rows, (m, n)), (self._by_columns, (n, m))
        wanted, other = (by_columns, by_rows) if transposed else (by_rows, by_columns)
        return (*wanted, False) if wanted[0] is not None else (*other, True)

    def to_array(self) -> Any:
        """Return A as a CuPy sparse matrix by rows."""
        from cupyx.scipy import sparse

        if self._by_rows is not None:
            indptr, indices, data = self._by_rows
            return sparse.csr_matrix((data, indices, indptr), shape=self.shape)
        assert self._by_columns is not None
        indptr, indices, data = self._by_columns
        return sparse.csc_matrix((data, indices, indptr), shape=self.shape).tocsr()


class DenseMatrix(DeviceMatrix):
    """A dense A; both products are ``cublasSgemv``.

    Raises
    ------
    InputError
        It is no real matrix of two dimensions.
    """

    def __init__(self, context: Context, matrix: Any) -> None:
        import cupy

        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            raise InputError(
                f"A is {matrix.ndim}-dimensional of {matrix.dtype}: give a real matrix"
            )
        super().__init__(context, tuple(matrix.shape), "dense")
        self._matrix = cupy.ascontiguousarray(cupy.asarray(matrix, dtype=np.float32))

    @property
    def nbytes(self) -> int:
        """Bytes on the device."""
        return int(self._matrix.nbytes)

    def product(
        self, transposed: bool, alpha: Any, x: Any, beta: Any, y: Any, *, deterministic: bool
    ) -> Any:
        """Return a call that enqueues ``y = alpha A x + beta y``, or with A transposed."""
        return self.context.blas.product(self._matrix, transposed, alpha, x, beta, y)

    def to_array(self) -> Any:
        """Return A as a CuPy array."""
        return self._matrix


def check_csr(matrix: Any) -> None:
    """Refuse what cannot be held as CSR with 32-bit indices and FP32 values.

    Raises
    ------
    InputError
        No sparse matrix, not real, empty, or 2**31 rows, columns or entries and more.
    """
    if not is_sparse(matrix):
        raise InputError(f"A is {type(matrix).__name__}: give a sparse matrix, or DenseMatrix(A)")
    if matrix.dtype.kind not in "biuf":
        raise InputError(f"A has the type {matrix.dtype}: the document's design is FP32")
    if 0 in matrix.shape:
        raise InputError(f"A has the shape {matrix.shape}: give at least one row and one column")
    if max(*matrix.shape, int(matrix.nnz)) >= 2**31:
        raise InputError(f"A has {matrix.nnz} entries: 32-bit indices end at 2**31 - 1")


def csr_bytes(shape: tuple[int, int], nnz: int, *, by_rows: bool) -> int:
    """Return the bytes of one format of A: 8 an entry and 4 a row (a column)."""
    return 8 * nnz + 4 * (shape[0 if by_rows else 1] + 1)


def choose_formats(formats: Formats, needed: int, free: int) -> Formats:
    """Return ``dual`` or ``single``: for ``auto`` dual where the second copy fits.

    Raises
    ------
    InputError
        ``formats`` is none of auto, dual, single.
    """
    if formats == "auto":
        return "dual" if needed <= MEMORY_SHARE * free else "single"
    if formats not in ("dual", "single"):
        raise InputError(f"formats={formats!r}: give auto, dual or single")
    return formats


def _arrays(matrix: Any) -> tuple[Any, Any, Any]:
    import cupy

    return (
        cupy.ascontiguousarray(matrix.indptr.astype(np.int32, copy=False)),
        cupy.ascontiguousarray(matrix.indices.astype(np.int32, copy=False)),
        cupy.ascontiguousarray(matrix.data.astype(np.float32, copy=False)),
    )
