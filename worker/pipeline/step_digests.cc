#include "worker/pipeline/step_digests.h"

#include "run/plan/proto/plan_proto.h"

namespace longhaul::worker {

v1::StepDigests DigestSigner::Sign(Step step, const std::vector<v1::EdgeDigests>& edges,
                                   std::optional<uint64_t> state_before,
                                   std::optional<uint64_t> state_after) const {
  v1::DigestBody body;
  body.set_run_id(run_.value());
  body.set_epoch(epoch_.value());
  body.set_stamp(stamp_.value());
  *body.mutable_cell() = ToProto(cell_);
  body.set_step(step.value());
  for (const v1::EdgeDigests& edge : edges) *body.add_edges() = edge;
  if (state_before) body.set_state_before(*state_before);
  if (state_after) body.set_state_after(*state_after);
  v1::StepDigests digests;
  digests.set_body(body.SerializeAsString());
  if (sign_) digests.set_signature(sign_(digests.body()));
  return digests;
}

v1::EdgeDigests EdgeDigestsOf(EdgeId edge, Direction direction, bool sent,
                              const MessageDigests::OfStep& of_step) {
  v1::EdgeDigests digests;
  digests.set_edge(edge.value());
  digests.set_forward(direction == Direction::kForward);
  digests.set_sent(sent);
  digests.set_messages(of_step.messages);
  digests.mutable_digests()->Add(of_step.digests.begin(), of_step.digests.end());
  return digests;
}

}  // namespace longhaul::worker
