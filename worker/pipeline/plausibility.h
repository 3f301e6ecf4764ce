// Judges by running statistics whether the tensors that a stage receives from one sender are
// plausible. Looks at a few rows of each tensor (a row has the channels of one token), which the
// sender cannot foresee. Three numbers are followed: the median norm of the rows, the cosine of
// their mean direction to that of earlier rows, and the share of values that are not finite.
//
// A tensor is implausible if a number is far outside of what the earlier tensors had. Early tensors
// (kLearning) only teach. Implausible tensors teach little: they count as if they were at the
// limit. For one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"

namespace longhaul::worker {

class Plausibility {
 public:
  static constexpr uint32_t kLearning = 64;  // tensors
  static constexpr size_t kRows = 32;        // of each tensor

  // `seed`: must not be known to the sender.
  explicit Plausibility(uint64_t seed) : random_(seed) {}

  // Draws the rows to look at, of `rows` that a tensor has: ascending, at most kRows.
  std::vector<size_t> DrawRows(size_t rows);
  // Judges a tensor by the values of its drawn rows, `channels` for each. Returns what is
  // implausible, a sentence without its full stop; nullopt: nothing.
  std::optional<std::string> Judge(std::span<const float> values, size_t channels);

 private:
  // Mean and variance with exponential weights.
  struct Follower {
    double mean = 0, variance = 0;
    // How far `value` is from the mean beyond what is usual, at least `least`; 0: not beyond.
    double Beyond(double value, double least) const;
    void Learn(double value, uint64_t before);  // `before`: number of values so far
  };

  std::mt19937_64 random_;
  uint64_t seen_ = 0;
  Follower log_norm_, cosine_, nonfinite_;
  std::vector<double> mean_row_;  // of unit length on the whole; empty: no tensor yet
};

// The statistics of all senders to this worker in one run. They outlive attempts at the run.
// Thread-safe.
class SenderBook {
 public:
  // Returns the statistics of what arrives over this edge; forgets those of other runs. Never null.
  std::shared_ptr<Plausibility> Of(const RunId& run, EdgeId edge);

 private:
  std::mutex mutex_;
  RunId run_;
  std::map<EdgeId, std::shared_ptr<Plausibility>> senders_;
};

}  // namespace longhaul::worker
