"""The public call: ``spmm`` for one product, ``plan`` for many."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncsparse_lab.spmm.choice import find_contender
from asyncsparse_lab.spmm.operands import dense
from asyncsparse_lab.spmm.plan_checks import Rules, check_columns, check_products, compute_type
from asyncsparse_lab.spmm.plan_object import Plan
from asyncsparse_lab.spmm.sparse_operands import sparse

if TYPE_CHECKING:
    from asyncsparse_lab.spmm.contender import Contender
    from asyncsparse_lab.spmm.variants import Variant


def spmm(
    A: Any,
    B: Any,
    out: Any = None,
    *,
    compute: str | None = None,
    out_dtype: str | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    stream: Any = None,
    kernel: str | Variant | Contender | None = None,
) -> Any:
    r"""Multiply a sparse with a dense matrix: C = alpha A B + beta C.

    Products of bf16 or float16 values are added up in float32 and rounded once, to C's type.
    Kernels that store blocks or windows multiply the zeros in them too: where B is not finite,
    NaN may reach every row of C whose block (64 x 64) or window of rows stores that row of B;
    where A has no non-zero near, it does not.  Values that overflow are infinite.

    Parameters
    ----------
    A : sparse matrix, m x k
        Of SciPy or CuPy in any format, of torch (CSR, CSC, COO, BSR), or our BCSR or WCSR.  CSR of
        CuPy keeps its indices, and 64 x 64 blocks of bf16 on the GPU are read where they are.
    B : dense matrix, k x n
        Of NumPy, CuPy, torch, or with ``__dlpack__``.  Rows or columns are contiguous: both
        layouts are taken as they are, and C gets the same one.  For NumPy and CuPy, uint16 means
        the bits of bf16.  On the CPU the product is the reference, and needs no GPU.
    out : dense matrix, m x n, optional
        Where C goes, on B's device and in B's layout; it may not share memory with B.
    compute : {"bfloat16", "float16"}, optional
        What A and B are rounded to, nearest, ties to even.  Required unless both have that type.
    out_dtype : {"bfloat16", "float16", "float32"}, optional
        That of ``compute``, or float32.  By default that of ``out``, or of ``compute``; float32
        where bf16 would reach the caller as bits although none were passed (NumPy and CuPy).
    alpha, beta : float
        Other than 1 and 0, the product goes to a float32 workspace, and a second kernel combines
        and rounds once.  With ``beta = 0``, out is not read.
    stream : optional
        A stream of CuPy or torch, or a handle; by default the current one of B's library.
    kernel : str, Variant or Contender, optional
        A kernel of :data:`~asyncsparse_lab.spmm.VARIANTS`, such as "bcsr-overlap", a library's
        ("cublas-dense"), or one's own; by default the planner chooses.

    Returns
    -------
    matrix, m x n
        ``out``, or a new one of B's library, device and layout.

    Raises
    ------
    InputError
        A shape, type, stride, index array or keyword is not as described.
    UnsupportedError, MemoryLimitError, DeviceError
        No kernel multiplies this, it would not fit, or the GPU is too small.  All before anything
        is launched.

    Examples
    --------
    >>> import numpy as np, scipy.sparse, asyncsparse_lab as asl
    >>> A = scipy.sparse.eye_array(3, format="csr")
    >>> asl.spmm(A, np.full((3, 2), 0.3), compute="bfloat16")[0]
    array([0.30078125, 0.30078125], dtype=float32)
    """
    given = dense(B, "B")
    operand = sparse(A)
    decided = compute_type(compute, operand.dtype, given.dtype)
    layout = "row-major"
    rules = Rules(operand.shape, operand.dtype, decided, compute is not None, out_dtype, layout)
    rules.check(given, None if out is None else dense(out, "out"))
    contender = None if kernel is None else find_contender(kernel)
    return Plan(operand, None, rules, contender)(B, out, alpha=alpha, beta=beta, stream=stream)


def plan(
    A: Any,
    n: int | None = None,
    *,
    compute: str | None = None,
    out_dtype: str | None = None,
    layout: str = "row-major",
    kernel: str | Variant | Contender | None = None,
    products: int | None = None,
) -> Plan:
    r"""Prepare a sparse matrix for many products.

    The planner predicts the time of every kernel and library from A's pattern, on the CPU;
    :meth:`Plan.explain` shows them.

    Parameters
    ----------
    A, compute, out_dtype, kernel
        As for :func:`spmm`; without ``compute`` A must have the type, and so must each B.
    n : int, optional
        Columns of B to plan for; by default those of the first B.  Any n can be multiplied.
    layout : {"row-major", "column-major"}
        Of B and C to plan for: "column-major" is PyTorch's ``x.T`` of [tokens, features].  Another
        layout is planned when it comes.
    products : int, optional
        How many products are to come.  With hundreds or more, the planner also looks for an order
        of A's rows in which each takes less time, where that can pay for finding it.  C is the
        same, but for the order in which products are added up.  Finding it is timed, so that two
        plans may choose differently where it hardly pays.

    Returns
    -------
    Plan
        ``plan @ B``, ``plan(B, out, alpha=, beta=, stream=)``, ``plan.update_values(new)``.

    Raises
    ------
    InputError, UnsupportedError, MemoryLimitError
        As :func:`spmm`.

    Examples
    --------
    >>> import asyncsparse_lab as asl
    >>> plan = asl.plan(asl.load_matrix("mycielskian11"), n=1024, compute="bfloat16")
    >>> plan.explain()  # doctest: +SKIP
    """
    if n is not None:
        n = check_columns(n)
    operand = sparse(A)
    decided = compute_type(compute, operand.dtype)
    rounds, count = compute is not None, check_products(products)
    rules = Rules(operand.shape, operand.dtype, decided, rounds, out_dtype, layout, count)
    return Plan(operand, n, rules, None if kernel is None else find_contender(kernel))
