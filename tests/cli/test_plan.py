from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from asyncsparse_lab import cli
from asyncsparse_lab.spmm.plan_structure import Structure


def run(*arguments):
    with pytest.raises(SystemExit) as ended:
        cli.main(("plan", *arguments))
    return ended.value.code


def test_it_shows_every_kernel_and_names_the_fastest(capsys):
    assert run("mycielskian9", "-n", "256") == 0
    shown = capsys.readouterr().out
    for name in ("bcsr-overlap", "csr-vector", "cublas-dense", "cusparse-blocked-ell", "bound by"):
        assert name in shown
    assert "383 x 383, 14,542 non-zeros" in shown
    assert "The article's rule: the fill ratio is" in shown


def test_a_program_reads_the_same(capsys):
    assert run("mycielskian9", "--n", "256", "--dtype-out", "float32", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["matrix"], facts["n"], facts["nnz"]) == ("mycielskian9", 256, 14542)
    times = [one["predicted_us"] for one in facts["candidates"]]
    assert times == sorted(times)
    assert "cusparse-csr-alg2" in {one["kernel"] for one in facts["candidates"]}
    for one in facts["candidates"]:
        assert sum(one["parts"].values()) == pytest.approx(one["predicted_us"])
        assert one["bound_by"] in one["parts"]


def test_c_has_the_type_of_the_inputs_unless_said(capsys):
    assert run("mycielskian9", "--dtype-in", "float16") == 0
    assert "cublas-dense" in capsys.readouterr().out


def test_complex_matrices_are_refused(capsys, tmp_path):
    path = tmp_path / "phases.mtx"
    path.write_text("%%MatrixMarket matrix coordinate complex general\n1 2 1\n1 2 1 -2\n")
    assert run(str(path)) == 1
    assert "phases.mtx is complex" in capsys.readouterr().err


def test_all_shows_configurations(capsys):
    assert run("mycielskian9", "--all") == 0
    assert "wgmma_n=256" in capsys.readouterr().out


def test_it_tells_when_ordering_has_paid(capsys):
    assert run("mycielskian11", "--products", "1000000") == 0
    shown = capsys.readouterr().out
    assert "wcsr-pipelined, similarity" in shown
    assert re.search(r"cuthill-mckee: ordering takes [\d.]+ ms and (has paid after|never)", shown)
    assert run("mycielskian11", "--products", "1000000", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    orders = [one for one in facts["candidates"] if "order" in one]
    assert {one["order"] for one in orders} == {"similarity", "cuthill-mckee"}
    assert all(one["ordering_us"] > 0 for one in orders)
    assert {one["params"]["row_order"] for one in orders} == {1, 2}


def test_the_lead_over_another_order_counts_what_ordering_takes(monkeypatch, capsys):
    arguments = ("mycielskian12", "-n", "512", "--products", "20000")
    assert run(*arguments, "--json") == 0
    candidates = json.loads(capsys.readouterr().out)["candidates"]
    windows = [one for one in candidates if one["kernel"] == "wcsr-pipelined"]
    times = {one.get("order", ""): one["predicted_us"] for one in reversed(windows)}  # the best
    assert times["similarity"] < times[""]
    # Each product is faster in that order, but a few too few are to come.
    taking = 1.2 * 20_000 * (times[""] - times["similarity"])
    ordered = Structure.ordered
    slowly = lambda self, code: replace(ordered(self, code), ordering_us=taking)  # noqa: E731
    monkeypatch.setattr(Structure, "ordered", slowly)
    assert run(*arguments) == 0
    found = re.search(r"^wcsr-pipelined, ([\d.]+)x (.*);", capsys.readouterr().out, re.M)
    assert found is not None
    assert found[2].startswith("wcsr-pipelined, similarity")
    assert float(found[1]) > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "name a matrix to plan for"),
        (("mycielskian9", "-n", "0"), "n=0"),
        (("mycielskian9", "-n", str(10**20)), f"n={10**20}"),
        (("mycielskian9", "--products", "0"), "products=0"),
        (("mycielskian9", "--gpu", "toy"), "no rates of toy"),
        (("mycielskian9", "--dtype-in", "float64"), "dtype_in='float64'"),
        (("--fit", "--records", "elsewhere"), "--records elsewhere"),
    ],
)
def test_bad_input_is_one_line(capsys, arguments, message):
    assert run(*arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
