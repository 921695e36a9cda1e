"""A GPU that nobody has, and matrices to plan for."""

from __future__ import annotations

import numpy as np
from scipy.sparse import csr_array, random_array

from asyncsparse_lab.spmm import plan_works as works
from asyncsparse_lab.spmm.plan_rates import Rates
from asyncsparse_lab.spmm.plan_structure import structure_of

RATES = Rates(
    gpu="toy",
    sm_count=10,
    memory_bytes=10**11,
    l2_bytes=5 * 10**7,
    shared_bytes=232_448,
    hbm_bytes_per_us=4e6,
    tma_bytes_per_us=9e6,
    gather_bytes_per_us=8e6,
    gather_latency_us=2.0,
    mma_flops_per_us=8e8,
    cublas_flops_per_us=8e8,
    fma_flops_per_us=6e7,
    empty_us=2.0,
)


def sparse(m=1000, k=800, density=0.01, seed=0):
    rng = np.random.default_rng(seed)
    return csr_array(random_array((m, k), density=density, format="csr", rng=rng))


def dense_blocks(rows=20, columns=20, seed=0):
    mask = np.random.default_rng(seed).random((rows, columns)) < 0.2
    return csr_array(np.kron(mask, np.ones((64, 64))))


def problem(A, n=512, output_bytes=2):
    return works.Problem(structure_of(A), n, output_bytes, RATES)
