// The merges of replicas that train apart: their outer steps (transport/replicas/outer_step.h),
// coded on a thread of its own while the stage computes.
//
//   merges.Begin(round, locals);           // what was learned is taken; its messages leave
//   merges.Take(said);                     // at any time: another replica may be ahead
//   if (*merges.IsReady()) merges.Merge(values);
//
// Threads: one at a time calls it. It calls the reducer and the outbox on its own thread, and uses
// `pool` from both, never at once: while no merge is under way its own thread does nothing but hold
// messages of the next one, which touches no numbers. So whoever calls it may read the reducer's.
#ifndef LONGHAUL_WORKER_PIPELINE_REPLICA_MERGES_H_
#define LONGHAUL_WORKER_PIPELINE_REPLICA_MERGES_H_

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
  // `reducer` and `pool` outlive it. All replicas begin with these values, one span a parameter.
  // `tell` is called on the thread of merges: OK when all of the merge under way is there, else
  // what went wrong, after which nothing more can be merged.
  ReplicaMerges(const replicas::LocalSgdOptions& options,
                std::span<const std::span<const float>> values, replicas::Reducer* reducer,
                codec::Parallel* pool, std::function<void(const Status&)> tell);

  // Merges count up by one. `locals`: the parameters as this replica has them now; not read after
  // the call.
  void Begin(uint64_t round, std::span<const std::span<const float>> locals);
  void Take(ReplicaSaid said);
  // Begin came, and Merge did not.
  bool under_way() const { return under_way_; }
  // All that Merge needs is there.
  StatusOr<bool> IsReady() const;
  // `locals` as they have become since Begin.
  void Merge(std::span<const std::span<float>> locals);

  // What a checkpoint has of it; while no merge is under way.
  replicas::OuterStep& outer() { return outer_; }
  const replicas::OuterStep& outer() const { return outer_; }

 private:
  // On the thread, as what follows.
  void Post(std::function<Status()> work);
  Status BeginRound(uint64_t round);
  Status StepReduced();
  uint32_t buckets() const { return static_cast<uint32_t>(reducer_->layout().buckets().size()); }

  replicas::OuterStep outer_;
  replicas::Reducer* const reducer_;
  const std::function<void(const Status&)> tell_;
  bool under_way_ = false;
  std::vector<bool> stepped_;  // by bucket; the thread's

  mutable std::mutex mutex_;  // what follows
  Status status_;
  bool ready_ = false;
  CodecThread thread_;  // last: it ends first
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_REPLICA_MERGES_H_
