// First values that come from elsewhere, read once for all ranks of a group.
//
//   SharedReader reader(shares, read, ranks);
//   // Each rank, on a thread of its own:
//   Status status = stage.Load(reader.OfRank(rank));
//   if (!status.ok()) reader.End();
//
// One parameter is in memory at a time: the next is read when every rank has its share of the one
// before.
#ifndef LONGHAUL_WORKER_STAGE_GROUP_SHARED_READER_H_
#define LONGHAUL_WORKER_STAGE_GROUP_SHARED_READER_H_

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
  // `shares` and `read` outlive it; `read` is called by one rank at a time.
  SharedReader(const Shares& shares, const ReadParameter& read, uint32_t ranks)
      : shares_(shares), read_(read), asked_(ranks) {}

  // Gives this rank's share of a parameter. All ranks ask for the same ones in the same order, also
  // where their share is nothing.
  // kAborted: another rank has ended it.
  ReadParameter OfRank(uint32_t rank);
  // A rank asks for no more; no other waits for it. Thread-safe.
  void End();

 private:
  Status Read(uint32_t rank, const model::PlacedParameter& parameter, std::span<float> share);

  const Shares& shares_;
  const ReadParameter& read_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<uint64_t> asked_;  // parameters, by rank
  uint64_t finished_ = 0;        // parameters of which all ranks have their shares
  size_t served_ = 0;            // ranks that have that of the next one
  bool ended_ = false;
  std::unique_ptr<float[]> whole_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_STAGE_GROUP_SHARED_READER_H_
