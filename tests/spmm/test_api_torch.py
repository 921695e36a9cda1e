"""The public call with torch's matrices on the CPU, where torch is installed."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array, random_array

import asyncsparse_lab as asl
from asyncsparse_lab.errors import InputError

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:Sparse")  # "support is in beta state"


@pytest.fixture
def A() -> csr_array:
    A = csr_array(random_array((192, 128), density=0.05, format="csr", rng=0))
    A.data = np.round(A.data * 15 + 1)
    return A


@pytest.fixture
def tokens():
    return torch.randint(-8, 8, (40, 128)).to(torch.bfloat16)


def full(A, dtype=torch.bfloat16):
    return torch.tensor(A.toarray()).to(dtype)


FORMS = {
    "csr": lambda x: x.to_sparse_csr(),
    "csc": lambda x: x.to_sparse_csc(),
    "coo": lambda x: x.to_sparse_coo(),
    "bsr64": lambda x: x.to_sparse_bsr((64, 64)),
    "bsr32x16": lambda x: x.to_sparse_bsr((32, 16)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_layout_of_torch(A, tokens, form, dtype):
    matrix, x = FORMS[form](full(A, dtype)), tokens.to(dtype)
    C = asl.spmm(matrix, x.T)
    assert C.dtype == dtype
    assert C.T.is_contiguous()  # [tokens, features] again
    expected = torch.tensor(A @ tokens.T.double().numpy())
    assert torch.equal(C, expected.to(dtype))
    out = torch.empty(192, 40, dtype=torch.float32)
    assert asl.spmm(matrix, x.T.contiguous(), out) is out
    assert torch.equal(out, expected.float())


def test_a_matrix_of_scipy_and_a_tensor(A, tokens):
    C = asl.spmm(A, tokens.T.float(), compute="bfloat16")
    assert C.dtype == torch.bfloat16
    C = asl.plan(A, compute="bfloat16", out_dtype="float32") @ tokens.T
    np.testing.assert_array_equal(C, A @ tokens.T.double().numpy())


def test_a_gradient_is_not_lost_without_a_word(A, tokens):
    weight = torch.nn.Parameter(full(A).to_sparse_csr())
    with pytest.raises(InputError, match=r"A requires a gradient.*torch\.no_grad\(\)"):
        asl.spmm(weight, tokens.T)
    with pytest.raises(InputError, match="B requires a gradient"):
        asl.spmm(weight.detach(), tokens.requires_grad_().T)
    with torch.no_grad():
        asl.spmm(weight, tokens.T)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"A": lambda x: x}, "A is a dense tensor"),
        (
            {"A": lambda x: x.to_sparse_csr().float()},
            "A holds float32 and B bfloat16: pass compute=",
        ),
        ({"B": lambda x: x.T.to(torch.float8_e4m3fn)}, "B holds float8_e4m3fn"),
        ({"B": lambda x: x.T.to_sparse_csr()}, "B is sparse"),
        ({"B": lambda x: x.T.view(torch.uint16)}, r"view\(torch.bfloat16\)"),
        ({"B": lambda x: x[None]}, "B has 3 dimensions, not 2"),
    ],
)
def test_bad_tensors_are_named(A, tokens, change, message):
    matrix = change.get("A", lambda x: x.to_sparse_csr())(full(A))
    with pytest.raises(InputError, match=message):
        asl.spmm(matrix, change.get("B", lambda x: x.T)(tokens))


def test_malformed_tensors_are_refused(tokens):
    with torch.sparse.check_sparse_tensor_invariants(False):
        parts = (torch.tensor([0, 1]), torch.tensor([128]), torch.ones(1, dtype=torch.bfloat16))
        broken = torch.sparse_csr_tensor(*parts, size=(1, 128))
        with pytest.raises(InputError, match="indices holds 128"):
            asl.spmm(broken, tokens.T)


@pytest.mark.parametrize("form", ["csr", "bsr64"])
def test_new_values(A, tokens, form):
    plan = asl.plan(FORMS[form](full(A)), out_dtype="float32")
    expected = A @ tokens.T.double().numpy()
    for factor in (2, 4):
        changed = FORMS[form](full(factor * A))
        plan.update_values(changed)
        np.testing.assert_array_equal(plan @ tokens.T, factor * expected)
    if form == "csr":
        plan.update_values(changed.values() / 4)
        np.testing.assert_array_equal(plan @ tokens.T, expected)
    with pytest.raises(InputError, match=r"pattern|blocks"):
        plan.update_values(FORMS[form](torch.ones(192, 128, dtype=torch.bfloat16).triu(64)))


def test_blocks_are_not_mistaken_for_values(A):
    plan = asl.plan(FORMS["bsr64"](full(A)))
    with pytest.raises(InputError, match="A came as blocks"):
        plan.update_values(torch.ones(5, dtype=torch.bfloat16))
