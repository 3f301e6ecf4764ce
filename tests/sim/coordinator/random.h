// Draws of one simulation, the same for a seed on every machine (the standard library's
// distributions are not).
#pragma once

#include <cstdint>
#include <random>

#include "absl/time/time.h"

namespace longhaul::coordinator::sim {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}

  // 0 to count - 1.
  uint64_t Below(uint64_t count) { return engine_() % count; }
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool Chance(double p) { return Unit() < p; }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    const auto span = static_cast<uint64_t>(absl::ToInt64Microseconds(most - least));
    return least + absl::Microseconds(static_cast<int64_t>(Below(span + 1)));
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace longhaul::coordinator::sim
