"""What compute-sanitizer takes for a race, though it is none: why LSMR has builds for racecheck."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from asyncsparse_lab.studies.sanitize import find_sanitizer, parse_report

pytestmark = pytest.mark.gpu

# Two warps add up and meet at a barrier of their own; all three meet before they read the sums,
# which are written in turn to two places. The waits let the third warp come first and last.
PATTERN = """
import sys
import cupy

kernel = cupy.RawKernel(r'''
extern "C" __global__ void pattern(int rounds, int barriers, double* out) {
  __shared__ double partial[2], total[2][2];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  unsigned state = 1 + warp * 7919 + blockIdx.x * 104729;
  double sum = 0;
  for (int round = 0; round < rounds; ++round) {
    state = state * 1664525u + 1013904223u;
    if (warp < 2) {
      if (lane == 0) partial[warp] = round + warp;
      asm volatile("bar.sync 1, 64;" ::: "memory");
    }
    __nanosleep((state >> 16) % 3000);
    if (warp < 2 && lane == 0) total[round % 2][warp] = partial[0] + partial[1];
    for (int i = 0; i < barriers; ++i) asm volatile("bar.sync 0;" ::: "memory");
    sum += total[round % 2][0] + total[round % 2][1];
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}''', "pattern")
out = cupy.empty(8 * 96)
for _ in range(40):
    kernel((8,), (96,), (200, int(sys.argv[1]), out))
assert (out == 2 * sum(2 * round + 1 for round in range(200))).all()
"""


@pytest.mark.parametrize(("barriers", "finds"), [(1, True), (2, False)])
def test_racecheck_overlooks_one_barrier_but_not_two(
    barriers: int, finds: bool, tmp_path: Path
) -> None:
    program = find_sanitizer()
    if program is None:
        pytest.skip("compute-sanitizer is not there")
    script = tmp_path / "pattern.py"
    script.write_text(PATTERN)
    command = [program, "--tool", "racecheck", sys.executable, str(script), str(barriers)]
    shown = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert shown.returncode == 0, "every sum is right, whatever racecheck finds"
    errors, _ = parse_report("racecheck", shown.stdout + shown.stderr)
    assert (errors > 0) == finds, "a version that finds nothing: WATCHED of LSMR can go"
