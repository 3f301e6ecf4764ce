// Random numbers of one simulation. Equal seeds give equal numbers on every machine; the standard
// library's distributions do not promise that. Not thread-safe.
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace longhaul::coordinator::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // Returns 0 to count - 1. `count` must not be 0.
  uint64_t Below(uint64_t count) { return engine_() % count; }
  // Returns a number from 0 to below 1.
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  // Returns true with probability `p`.
  bool Chance(double p) { return Unit() < p; }
  // Returns a duration from `least` to `most`, both included, in whole microseconds above `least`.
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    const auto span = static_cast<uint64_t>(absl::ToInt64Microseconds(most - least));
    return least + absl::Microseconds(static_cast<int64_t>(Below(span + 1)));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace longhaul::coordinator::sim
