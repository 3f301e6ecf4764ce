// One row of the benchmark before it is measured: an operation with its counts, and what must come
// out. Pure; all ranks make the same.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tests/bench/transport/collective/options.h"

namespace longhaul::collective::bench {

struct Job {
  Op op = Op::kAllReduce;
  uint64_t count = 0;  // as the call takes it; 0 where `counts` are given
  // For an all-to-all with unequal parts: elements from rank s to rank r at s x ranks + r.
  std::vector<uint64_t> counts;
  uint64_t bytes = 0;  // of the largest tensor of any rank
  // Bus bandwidth over algorithm bandwidth, as nccl-tests define it; with unequal parts: what the
  // busiest rank sends to or gets from others, over `bytes`.
  double bus_factor = 0;
  // Elements that the busiest rank gets over the ranks' mean; 1 for equal parts.
  double imbalance = 1;
};

// Sizes from the least to the most bytes, each operation after the other; or the one all-to-all of
// tokens that choose experts.
std::vector<Job> JobsOf(const Options& options);

// What rank `rank` has to do in a job.
struct Part {
  // Elements `first` on of rank `rank`'s input, or of the sum of all (no rank), are at `at`.
  struct Segment {
    uint64_t at = 0, count = 0, first = 0;
    std::optional<uint32_t> rank;
  };
  uint64_t in = 0, out = 0;  // elements
  std::vector<Block> send, receive;
  std::vector<Segment> expected;
  // In place, where the smaller of the two tensors begins in the larger one.
  uint64_t place = 0;
};
Part PartOf(const Job& job, uint32_t rank, uint32_t ranks);

}  // namespace longhaul::collective::bench
