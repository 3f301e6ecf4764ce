#include "worker/pipeline/replica_merges.h"

#include <memory>
#include <utility>

#include "base/check.h"

namespace longhaul::worker {

ReplicaMerges::ReplicaMerges(const replicas::LocalSgdOptions& options,
                             std::span<const std::span<const float>> values,
                             replicas::Reducer* reducer, codec::Parallel* pool,
                             std::function<void(const Status&)> tell)
    : outer_(options, values, pool), reducer_(reducer), tell_(std::move(tell)) {
  for (uint32_t b = 0; b < buckets(); ++b) outer_.PrepareBucket(b, reducer_->Own(b));
}

void ReplicaMerges::Begin(uint64_t round, std::span<const std::span<const float>> locals) {
  LH_CHECK(!under_way_, "a merge begins when the one before has ended");
  under_way_ = true;
  outer_.TakeDifferences(locals);
  Post([this, round] { return BeginRound(round); });
}

void ReplicaMerges::Take(ReplicaSaid said) {
  // Shared, because std::function copies what it holds.
  auto held = std::make_shared<ReplicaSaid>(std::move(said));
  Post([this, held = std::move(held)]() -> Status {
    LH_RETURN_IF_ERROR(reducer_->Take(held->replica, std::move(held->message)));
    // Before BeginRound the message is of the next merge, and the reducer only stores it.
    return stepped_.empty() ? absl::OkStatus() : StepReduced();
  });
}

StatusOr<bool> ReplicaMerges::IsReady() const {
  const std::lock_guard lock(mutex_);
  if (!status_.ok()) return status_;
  return ready_;
}

void ReplicaMerges::Merge(std::span<const std::span<float>> locals) {
  {
    const std::lock_guard lock(mutex_);
    LH_CHECK(under_way_ && ready_, "a merge ends when all of it is there");
    ready_ = false;
  }
  outer_.Merge(locals);
  under_way_ = false;
}

void ReplicaMerges::Post(std::function<Status()> work) {
  thread_.Post([this, work = std::move(work)] {
    {
      // After an error nothing can be merged any more.
      const std::lock_guard lock(mutex_);
      if (!status_.ok()) return;
    }
    const Status status = work();
    const bool done = status.ok() && !stepped_.empty() && reducer_->IsDone();
    if (status.ok() && !done) return;
    stepped_.clear();
    {
      const std::lock_guard lock(mutex_);
      status_ = status;
      ready_ = ready_ || done;  // a bad message of the next merge does not undo this one
    }
    tell_(status);
  });
}

Status ReplicaMerges::BeginRound(uint64_t round) {
  stepped_.assign(buckets(), false);
  LH_RETURN_IF_ERROR(reducer_->Begin(round, outer_.memory()));
  for (uint32_t b = 0; b < buckets(); ++b) LH_RETURN_IF_ERROR(reducer_->GiveGradients(b));
  return StepReduced();
}

// Steps the masters of each bucket that has been reduced, and sends the result to all.
Status ReplicaMerges::StepReduced() {
  for (uint32_t b = 0; b < buckets(); ++b) {
    if (stepped_[b] || !reducer_->IsReduced(b)) continue;
    stepped_[b] = true;
    outer_.StepMasters(b, reducer_->Own(b));
    LH_RETURN_IF_ERROR(reducer_->GiveParameters(b));
  }
  return absl::OkStatus();
}

}  // namespace longhaul::worker
