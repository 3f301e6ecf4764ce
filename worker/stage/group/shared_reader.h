// Reads the initial parameters of a group's stage once, and gives each rank its share of them.
//
//   SharedReader reader(shares, read, ranks);
//   // Each rank, on a thread of its own:
//   Status status = stage.Load(reader.OfRank(rank));
//   if (!status.ok()) reader.End();
//
// Only one whole parameter is in memory at a time: the next one is read when all ranks have their
// share of the current one.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "worker/stage/group/shares.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {

class SharedReader {
 public:
  // `shares` and `read` must outlive this object. Only one rank at a time calls `read`.
  SharedReader(const Shares& shares, const ReadParameter& read, uint32_t ranks)
      : shares_(shares), read_(read), asked_(ranks) {}

  // Returns a function that reads the share of rank `rank`; this object must outlive it. All ranks
  // must read the same parameters in the same order, even if their share is empty. Each call blocks
  // until all ranks have read the previous parameter. Errors of the call: those of `read`, and
  // kAborted: another rank has failed or called End.
  ReadParameter OfRank(uint32_t rank);
  // Call it when a rank has failed. Then the reads of all ranks fail, so that no rank waits for the
  // rank that has failed.
  // Thread-safe.
  void End();

 private:
  Status Read(uint32_t rank, const model::PlacedParameter& parameter, std::span<float> share);

  const Shares& shares_;
  const ReadParameter& read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> asked_;  // number of parameters requested, by rank
  uint64_t finished_ = 0;        // number of parameters that all ranks have read
  size_t served_ = 0;            // number of ranks that have read the next one
  bool ended_ = false;
  std::unique_ptr<float[]> whole_;
};

}  // namespace longhaul::worker
