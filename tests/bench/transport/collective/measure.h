// What one rank does: all jobs, each with all variants in alternation. Every rank runs the same
// code on its own thread or in its own process.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/transport/collective/gate.h"
#include "tests/bench/transport/collective/job.h"
#include "tests/bench/transport/collective/numbers.h"
#include "tests/bench/transport/collective/options.h"
#include "tests/bench/transport/collective/place.h"
#include "transport/collective/member.h"

namespace longhaul::collective::bench {

struct Candidate {
  Variant variant;
  std::shared_ptr<Communicator> communicator;
};

// What came out of one call, over all ranks.
struct Outcome {
  uint64_t elements = 0;
  uint64_t differ = 0;  // from the reference
  uint64_t wrong = 0;   // of these, what the variant may not do
  double error = 0;     // relative, L2
  uint64_t sent_bytes = 0, tensor_bytes = 0;
  std::string refused;  // why the variant could not do this call; the rest is empty then
};

struct Row {
  Job job;
  std::string variant;
  Outcome outcome;
  uint32_t iterations = 0;     // of a batch
  std::vector<double> rounds;  // seconds of a call, of the slowest rank
  std::vector<double> faster;  // native's time over this one's, round by round
};

struct RankSetting {
  const Options* options = nullptr;
  const Numbers* numbers = nullptr;
  std::shared_ptr<Member> member;
  Gate* gate = nullptr;
  Place* place = nullptr;
  std::vector<Candidate> candidates;
  // Rank 0 only: gets a job's rows when they are there.
  std::function<void(const std::vector<Row>&)> done;
};

// An error ends the group: the caller tells the others (Member::End).
Status MeasureAll(RankSetting setting);

}  // namespace longhaul::collective::bench
