// The scalars of LSMR, in two halves: all that needs beta only, and what needs alpha too. Each
// half runs on one warp (a lane a right-hand side) while the other warps multiply. The names are
// those of Fong and Saunders; asyncsparse_lab/lsmr/recurrence.py is the same in Python.
#pragma once

#include "lsmr_arguments.cuh"

constexpr double EPSILON = 2.220446049250313e-16;

enum StopCode : int32_t {
  RUNNING = -1,
  STARTS_SOLVED = 0,
  CONSISTENT = 1,
  LEAST_SQUARES = 2,
  CONDITION_LIMIT = 3,
  CONSISTENT_AT_ROUNDING = 4,
  LEAST_SQUARES_AT_ROUNDING = 5,
  CONDITION_AT_ROUNDING = 6,
  ITERATION_LIMIT = 7,
  INPUT_NOT_FINITE = -2,
  PRODUCT_NOT_FINITE = -3,
  BARRIER_TIMED_OUT = -4,
};

struct Rotation {
  double c, s, r, inverse_r;
};

// [c s; s -c] [a; b] = [r; 0], r >= 0. Scaled by a power of two, so no square over- or underflows.
__device__ __forceinline__ Rotation rotate(double a, double b) {
  const double size = fmax(fabs(a), fabs(b));
  if (size == 0.0) return {0.0, 0.0, 0.0, 0.0};
  const int exponent = __double2hiint(size) & 0x7ff00000;
  const double scale = __hiloint2double(0x7fe00000 - exponent, 0);
  a *= scale;
  b *= scale;
  const double square = a * a + b * b;
  const double inverse = rsqrt(square);
  return {a * inverse, b * inverse, square * inverse / scale, inverse * scale};
}

struct Estimates {  // of one iteration
  double normr, normar, norma, conda;
};

struct Scalars {
  double zetabar, alphabar, rho, inverse_rho, rhobar, inverse_rhobar, cbar, sbar, zeta;
  double betadd, betad, rhodold, tautildeold, thetatilde, d;
  double norma_squared, maxrbar, minrbar;
  // From the half that knows beta to the half that knows alpha.
  double beta, c, s, rhotemp, ctilde, stilde, hbar_factor, norma, conda;
  Estimates estimates;
  double normb, size;  // the problem is solved for b / size, a power of two
  int32_t itn;
};

__device__ __noinline__ void start_scalars(Scalars& q, double alpha, double beta) {
  q.zetabar = alpha * beta;
  q.alphabar = alpha;
  q.rho = q.inverse_rho = q.rhobar = q.inverse_rhobar = q.cbar = 1.0;
  q.sbar = q.zeta = 0.0;
  q.betadd = beta;
  q.betad = q.tautildeold = q.thetatilde = q.d = 0.0;
  q.rhodold = 1.0;
  q.norma_squared = alpha * alpha;
  q.maxrbar = 0.0;
  q.minrbar = 1e300;
  q.estimates = {beta, fabs(q.zetabar), alpha, 1.0};
  q.itn = 0;
}

__device__ __noinline__ void advance_by_beta(Scalars& q, double beta, double damp) {
  ++q.itn;
  q.beta = beta;
  const Rotation hat = rotate(q.alphabar, damp);
  const double inverse_rhoold = q.inverse_rho;
  const Rotation first = rotate(hat.r, beta);
  q.c = first.c;
  q.s = first.s;
  q.rho = first.r;
  q.inverse_rho = first.inverse_r;
  const double thetabar = q.sbar * q.rho;
  q.rhotemp = q.cbar * q.rho;
  q.hbar_factor = thetabar * q.rho * inverse_rhoold * q.inverse_rhobar;

  // The residual's norm.
  const double betaacute = hat.c * q.betadd;
  const double betacheck = -hat.s * q.betadd;
  const double betahat = q.c * betaacute;
  q.betadd = -q.s * betaacute;
  const Rotation tilde = rotate(q.rhodold, thetabar);
  q.ctilde = tilde.c;
  q.stilde = tilde.s;
  q.betad = -tilde.s * q.betad + tilde.c * betahat;
  q.tautildeold = (q.zeta - q.thetatilde * q.tautildeold) * tilde.inverse_r;
  q.d += betacheck * betacheck;

  // Norm and condition of A.
  q.norma_squared += beta * beta;
  q.norma = sqrt(q.norma_squared);
  if (q.itn > 1) {  // the rhobar before the first rotation is no singular value's estimate
    q.maxrbar = fmax(q.maxrbar, q.rhobar);
    q.minrbar = fmin(q.minrbar, q.rhobar);
  }
  q.conda = fmax(q.maxrbar, q.rhotemp) / fmin(q.minrbar, q.rhotemp);
}

struct Factors {  // hbar = h - hbar_factor hbar; x += step hbar; h = v - h_factor h
  double hbar_factor, step, h_factor;
};

__device__ __noinline__ Factors advance_by_alpha(Scalars& q, double alpha) {
  const double thetanew = q.s * alpha;
  q.alphabar = q.c * alpha;
  const Rotation second = rotate(q.rhotemp, thetanew);
  q.cbar = second.c;
  q.sbar = second.s;
  q.rhobar = second.r;
  q.inverse_rhobar = second.inverse_r;
  q.zeta = q.cbar * q.zetabar;
  q.zetabar = -q.sbar * q.zetabar;
  const Factors factors = {q.hbar_factor, q.zeta * q.inverse_rho * q.inverse_rhobar,
                           thetanew * q.inverse_rho};

  q.thetatilde = q.stilde * q.rhobar;
  q.rhodold = q.ctilde * q.rhobar;
  const double taud = (q.zeta - q.thetatilde * q.tautildeold) / q.rhodold;
  const double gap = q.betad - taud;
  q.norma_squared += alpha * alpha;
  q.estimates = {sqrt(q.d + gap * gap + q.betadd * q.betadd), fabs(q.zetabar), q.norma, q.conda};
  return factors;
}

// The strongest test that is met; written without divisions, see stop_code in recurrence.py.
__device__ inline int32_t stop_code(const Estimates& e, double normx, double normb, int32_t itn,
                                    const LsmrArguments& g) {
  if (e.normr <= g.btol * normb + g.atol * e.norma * normx) return CONSISTENT;
  if (e.normar <= g.atol * e.norma * e.normr) return LEAST_SQUARES;
  if (g.conlim > 0.0 && e.conda >= g.conlim) return CONDITION_LIMIT;
  if (e.normr <= EPSILON / 2 * (normb + e.norma * normx)) return CONSISTENT_AT_ROUNDING;
  if (e.normar <= EPSILON / 2 * e.norma * e.normr) return LEAST_SQUARES_AT_ROUNDING;
  if (e.conda >= 2 / EPSILON) return CONDITION_AT_ROUNDING;
  return itn >= g.maxiter ? ITERATION_LIMIT : RUNNING;
}
