// Merges replicas that train apart by outer steps (transport/replicas/outer_step.h). Codes on a
// thread of its own while the stage computes.
//
//   merges.Begin(round, locals);           // takes the differences; sends its messages
//   merges.Take(said);                     // at any time: another replica may be ahead
//   if (*merges.IsReady()) merges.Merge(values);
//
// Threads: one caller at a time. The merge thread uses the reducer and the outbox. `pool` serves
// both threads, but never at once: while no merge is in flight, the merge thread only stores
// messages of the next merge and touches no numbers, so the caller may then read the reducer's
// numbers.
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
  // `reducer` and `pool` outlive this object. `values`: the parameters with which all replicas
  // begin, one span each. `tell` is called on the merge thread: with OK when all messages of the
  // current merge have arrived, else with the error, after which no merge is possible.
  ReplicaMerges(const replicas::LocalSgdOptions& options,
                std::span<const std::span<const float>> values, replicas::Reducer* reducer,
                codec::Parallel* pool, std::function<void(const Status&)> tell);

  // Begins a merge. `round` counts up by one. `locals`: this replica's parameters, not read after
  // the call.
  void Begin(uint64_t round, std::span<const std::span<const float>> locals);
  void Take(ReplicaSaid said);
  // Whether a merge has begun and Merge was not called yet.
  bool under_way() const { return under_way_; }
  // Whether everything that Merge needs has arrived.
  StatusOr<bool> IsReady() const;
  // `locals`: the current parameters, several steps after Begin. Merge changes them.
  void Merge(std::span<const std::span<float>> locals);

  // The state for a checkpoint. Call it only while no merge is in flight.
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
