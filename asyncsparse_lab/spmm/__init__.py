"""Sparse times dense: the table of kernels, and how one of them runs on a matrix."""

from asyncsparse_lab.spmm.geometry import Geometry
from asyncsparse_lab.spmm.variants import VARIANTS, Variant, find_variant

__all__ = ["VARIANTS", "Geometry", "Variant", "find_variant"]
