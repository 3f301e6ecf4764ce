// Holds what a call left on one rank against the reference.
#pragma once

#include <cstdint>

#include "tests/bench/transport/collective/job.h"
#include "tests/bench/transport/collective/numbers.h"
#include "tests/bench/transport/collective/place.h"

namespace longhaul::collective::bench {

// What a variant owes for an operation.
enum class Promise : uint8_t {
  kBits,     // those of the reference
  kRounded,  // sums in any order, each addition rounded to the dtype
  kLossy,    // a relative error of at most kLossyLimit over a rank's result, and finite numbers
};
inline constexpr double kLossyLimit = 0.1;
Promise PromiseOf(const Variant& variant, Op op, const Options& options);

struct Comparison {
  uint64_t elements = 0, differ = 0, wrong = 0;
  double error_squares = 0, squares = 0;
  uint64_t checksum = 0;
};
StatusOr<Comparison> Compare(Place* place, const std::byte* result, const Part& part,
                             const Numbers& numbers, Dtype dtype, uint32_t ranks, Promise promise);

}  // namespace longhaul::collective::bench
