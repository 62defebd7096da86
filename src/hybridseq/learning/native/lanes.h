/* Eight lanes: the arithmetic of one number for each of the eight sequences of a batch.

   A v8 holds the same scalar of all eight sequences (one AVX register in float, two in double), so everything below and in the
   other files reads like code for one sequence. No intrinsics: GCC's and Clang's vector extensions, whose operators work lane by
   lane. Without -ffast-math a NaN stays a NaN; the comparisons below are written so that it does.

   Products and sums may be contracted to fused multiply-adds (the compiler's default); nothing is reassociated. */

#ifndef HYBRIDSEQ_LANES_H
#define HYBRIDSEQ_LANES_H

#include <stdint.h>
#include <string.h>

#ifdef DOUBLE
typedef double real;
typedef int64_t word;
#define SQRT __builtin_sqrt
#else
typedef float real;
typedef int32_t word;
#define SQRT __builtin_sqrtf
#endif

enum { LANES = 8 };

typedef real v8 __attribute__((vector_size(LANES * sizeof(real))));
typedef word w8 __attribute__((vector_size(LANES * sizeof(word))));

#define INLINE static inline __attribute__((always_inline))

#define LN2 0.693147180559945309417232
#define LOG2E 1.44269504088896340735992

INLINE v8 all(real x) { return (v8){x, x, x, x, x, x, x, x}; }

INLINE v8 load(const real *p) {
    v8 x;
    memcpy(&x, p, sizeof x);
    return x;
}

INLINE void store(real *p, v8 x) { memcpy(p, &x, sizeof x); }

/* Lane by lane: yes where the mask is set, else no. */
INLINE v8 pick(w8 mask, v8 yes, v8 no) { return (v8)((mask & (w8)yes) | (~mask & (w8)no)); }

INLINE v8 at_least(v8 x, real low) { return pick(x < all(low), all(low), x); }   /* NaN stays */
INLINE v8 at_most(v8 x, real high) { return pick(x > all(high), all(high), x); } /* NaN stays */
INLINE v8 larger(v8 a, v8 b) { return pick(a > b, a, b); }

INLINE real sum_lanes(v8 x) {
    return ((x[0] + x[1]) + (x[2] + x[3])) + ((x[4] + x[5]) + (x[6] + x[7]));
}

/* Sums of neighbouring lanes, of a and b in turn: a0 + a1, a2 + a3, b0 + b1, b2 + b3, and so on with lanes 4 to 7. */
INLINE v8 add_neighbours(v8 a, v8 b) {
    return __builtin_shufflevector(a, b, 0, 2, 8, 10, 4, 6, 12, 14) + __builtin_shufflevector(a, b, 1, 3, 9, 11, 5, 7, 13, 15);
}

/* to[k] += the sum over the lanes of x_k, in the order of additions of sum_lanes. */
INLINE void add_lanes4(real *to, v8 x0, v8 x1, v8 x2, v8 x3) {
    v8 sums = add_neighbours(add_neighbours(x0, x1), add_neighbours(x2, x3));
    for (int k = 0; k < 4; k++) to[k] += sums[k] + sums[k + 4];
}

/* 2^x. x = r + f with r whole and |f| <= 1/2: adding 1.5 * 2^(mantissa bits) leaves r in the low bits, which are
   shifted into the exponent. float: the minimax polynomial of degree 6 for (2^f - 1) / f, relative error 1e-8 before rounding;
   double: Taylor's series of degree 13, below 1e-17. Meaningless where 2^x is no
   normal number. */
INLINE v8 power_of_two(v8 x) {
#ifdef DOUBLE
    const real shift = 6755399441055744.0;
    const int bits = 52;
#else
    const real shift = 12582912.0f;
    const int bits = 23;
#endif
    v8 whole = x + shift, f = x - (whole - shift), p;
#ifdef DOUBLE
    static const double inverse_factorial[] = {1.0 / 6227020800, 1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880,
                                               1.0 / 40320, 1.0 / 5040, 1.0 / 720, 1.0 / 120, 1.0 / 24, 1.0 / 6, 0.5, 1, 1};
    f *= LN2;
    p = all(inverse_factorial[0]);
    for (int k = 1; k < 14; k++) p = p * f + inverse_factorial[k];
#else
    p = f * 0.0001546973508084193f + 0.0013390866806730628f;
    p = p * f + 0.009618030861020088f;
    p = p * f + 0.055503569543361664f;
    p = p * f + 0.24022650718688965f;
    p = p * f + 0.6931471824645996f;
    p = p * f + 1.0f;
#endif
    return (v8)((w8)p + ((w8)whole << bits));
}

#ifdef DOUBLE
#define LEAST_EXPONENT (-1022)
#define MOST_EXPONENT 1023
#else
#define LEAST_EXPONENT (-126)
#define MOST_EXPONENT 127
#endif

/* x <= 0; exactly 0 below the smallest normal number. NaN stays: it is not smaller. */
INLINE v8 exp2_negative(v8 x) { return (v8)((w8)power_of_two(x) & ~(x < all(LEAST_EXPONENT))); }
INLINE v8 exp2_any(v8 x) { return power_of_two(at_most(at_least(x, LEAST_EXPONENT), MOST_EXPONENT)); }

INLINE v8 sigmoid(v8 x) { return 1 / (1 + exp2_any(x * (real)-LOG2E)); }

/* atanh(s) / s as a function of z = s^2 in [0, 1/9]: float minimax of degree 4 (error 4e-9), double Taylor's series (1e-17). */
INLINE v8 atanh_ratio(v8 z) {
#ifdef DOUBLE
    v8 p = all(1.0 / 33);
    for (int k = 31; k >= 1; k -= 2) p = p * z + 1.0 / k;
#else
    v8 p = z * 0.1408916711807251f + 0.13980300724506378f;
    p = p * z + 0.20012454688549042f;
    p = p * z + 0.3333315849304199f;
    p = p * z + 1.0f;
#endif
    return p;
}

/* log(1 + e^x), accurate also where it is small, and its derivative, the logistic function of x. */
INLINE v8 softplus(v8 x, v8 *derivative) {
    v8 zero = all(0), size = pick(x < zero, -x, x);
    v8 e = exp2_negative(size * (real)-LOG2E), s = e / (2 + e);
    *derivative = pick(x < zero, e, all(1)) / (1 + e);
    return pick(x < zero, zero, x) + 2 * s * atanh_ratio(s * s);
}

/* log x for positive normal x; NaN stays. */
INLINE v8 logarithm(v8 x) {
#ifdef DOUBLE
    const word root_half = 0x3fe6a09e667f3bcd;
    const int bits = 52;
#else
    const word root_half = 0x3f3504f3;
    const int bits = 23;
#endif
    w8 e = ((w8)x - root_half) >> bits;
    v8 m = (v8)((w8)x - (e << bits)), s = (m - 1) / (m + 1); /* x = 2^e m, sqrt(1/2) <= m < sqrt(2) */
    v8 y = __builtin_convertvector(e, v8) * (real)LN2 + 2 * s * atanh_ratio(s * s);
    return pick(x == x, y, x);
}

/* Numbers below the smallest normal one count as zero while a call runs; the caller's setting comes back afterwards. */
#ifdef __SSE__
INLINE unsigned flush_subnormals(void) {
    unsigned before = __builtin_ia32_stmxcsr();
    __builtin_ia32_ldmxcsr(before | 0x8040);
    return before;
}
INLINE void restore_subnormals(unsigned before) { __builtin_ia32_ldmxcsr(before); }
#else
INLINE unsigned flush_subnormals(void) { return 0; }
INLINE void restore_subnormals(unsigned before) { (void)before; }
#endif

#endif
