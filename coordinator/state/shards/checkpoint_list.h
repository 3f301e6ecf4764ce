// `longhaul checkpoints`: lists a run's checkpoints. On request, workers first hash all shards
// (checkpoint files), or first send the parameters of one checkpoint to the coordinator.
#pragma once

#include <cstdint>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class CheckpointList {
 public:
  CheckpointList(Ledger& ledger, Shards& shards);

  // Replies at once, or when all checks have ended. kNotFound: no such run or checkpoint.
  void On(event::CheckpointsAsked& asked);

 private:
  // Makes workers send the parameters of the checkpoint of `step` to the coordinator; 0: of the
  // newest checkpoint without known damage.
  void Gather(const Run& run, RequestId request, uint64_t step);
  // Answers the request, unless some of its checks are under way.
  void AnswerVerified(const Run& run, RequestId request);
  // `verified`: shards hashed for this reply; nullptr: no check was requested.
  v1::CheckpointsReply Render(const Run& run, const VerifiedShards* verified) const;

  Ledger& ledger_;
  Shards& shards_;
};

}  // namespace longhaul::coordinator
