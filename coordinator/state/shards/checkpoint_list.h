// `longhaul checkpoints`: lists a run's checkpoints, as the coordinator knows them or after all
// shards were hashed. On request, first has the parameters of one checkpoint sent to the
// coordinator.
#pragma once

#include <cstdint>

#include "coordinator/state/events.h"
#include "coordinator/state/ledger/ledger.h"
#include "coordinator/state/shards/shards.h"

namespace longhaul::coordinator {

class CheckpointList {
 public:
  CheckpointList(Ledger& ledger, Shards& shards);

  void On(event::CheckpointsAsked& asked);

 private:
  // Makes workers send the parameters of the checkpoint of `step` to the coordinator; 0: of the
  // newest whole one.
  void Gather(const Run& run, RequestId request, uint64_t step);
  // Answers, unless the request waits for checks.
  void AnswerVerified(const Run& run, RequestId request);
  // `verified`: shards hashed for this reply; nullptr: no check was requested.
  v1::CheckpointsReply Render(const Run& run, const VerifiedShards* verified) const;

  Ledger& ledger_;
  Shards& shards_;
};

}  // namespace longhaul::coordinator
