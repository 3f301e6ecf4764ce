// One call with its inputs and what must come out: made of a seed, so that every rank knows what
// all others have.
#pragma once

#include <cstdint>
#include <string>

#include "tests/conformance/collective/group.h"

namespace longhaul::collective {

struct Case {
  Op op = Op::kBarrier;
  Dtype dtype = Dtype::kF32;
  Reduction reduction = Reduction::kSum;
  uint64_t count = 0;  // as the call's; with `blocks` the most elements for a peer
  uint32_t root = 0;
  bool in_place = false;
  bool blocks = false;  // AllToAllV, with blocks of all sizes in no order
  uint64_t seed = 0;
};
std::string ToString(const Case& test);

// Makes the call and checks it on this rank, with gtest's expectations. The reference sums in fp32
// in the order of ranks and rounds once.
void RunCase(Rank& rank, const Case& test);

}  // namespace longhaul::collective
