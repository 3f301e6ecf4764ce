// Merges the parameters of replicas that train apart, by outer steps
// (transport/replicas/outer_step.h). Messages are encoded and decoded on the merge thread, which
// this class owns, while the stage computes.
//
//   merges.Begin(round, locals);           // sends this replica's changes since the last merge
//   merges.Take(said);                     // at any time: another replica may be ahead
//   if (*merges.IsReady()) merges.Merge(values);
//
// Threads: one caller at a time. The merge thread calls the reducer, so the reducer also sends its
// messages on the merge thread. While no merge is in flight, the merge thread only stores messages
// of the next merge. So the caller may then read the reducer's numbers, and the two threads never
// use `pool` at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <span>
#include <vector>

#include "base/status.h"
#include "codec/parallel.h"
#include "transport/replicas/outer_step.h"
#include "transport/replicas/reducer.h"
#include "worker/pipeline/codec_thread.h"
#include "worker/pipeline/event_queue.h"

namespace longhaul::worker {

class ReplicaMerges {
 public:
  // `reducer` and `pool` must outlive this object. `values`: the parameters with which all replicas
  // begin, one span a parameter. `tell` is called on the merge thread: with OK when all messages of
  // the current merge have arrived, or with an error. After an error no merge is possible.
  ReplicaMerges(const replicas::LocalSgdOptions& options,
                std::span<const std::span<const float>> values, replicas::Reducer* reducer,
                codec::Parallel* pool, std::function<void(const Status&)> tell);

  // Begins a merge. `round`: the number of the merge, one more than at the last call. `locals`:
  // this replica's parameters; they are not read after the call.
  void Begin(uint64_t round, std::span<const std::span<const float>> locals);
  // Takes a message of another replica.
  void Take(ReplicaSaid said);
  // Returns true between Begin and Merge.
  bool under_way() const { return under_way_; }
  // Returns true if all messages that Merge needs have arrived. Fails with the error that `tell`
  // got, if any.
  StatusOr<bool> IsReady() const;
  // Ends the merge: changes `locals`, this replica's current parameters, which may be some steps
  // newer than those of Begin. Call it only after IsReady() was true.
  void Merge(std::span<const std::span<float>> locals);

  // The state of the outer steps. Read or restore it for a checkpoint only while no merge is in
  // flight.
  replicas::OuterStep& outer() { return outer_; }
  const replicas::OuterStep& outer() const { return outer_; }

 private:
  // Runs `work` on the merge thread. The functions below run there.
  void Post(std::function<Status()> work);
  Status BeginRound(uint64_t round);
  Status StepReduced();
  uint32_t buckets() const { return static_cast<uint32_t>(reducer_->layout().buckets().size()); }

  replicas::OuterStep outer_;
  replicas::Reducer* const reducer_;
  const std::function<void(const Status&)> tell_;
  bool under_way_ = false;
  std::vector<bool> stepped_;  // by bucket; merge thread only

  mutable std::mutex mutex_;  // guards the members below
  Status status_;
  bool ready_ = false;
  CodecThread thread_;  // last member: it ends first
};

}  // namespace longhaul::worker
