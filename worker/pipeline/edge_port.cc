#include "worker/pipeline/edge_port.h"

namespace longhaul::worker {

void EdgePort::Say(const LinkHealth& health) const {
  if (on_health_) on_health_(health);
}

std::optional<transport::LinkStats> EdgePort::Stats() {
  const auto open = link();
  return open ? std::optional(open->stats()) : std::nullopt;
}

void EdgePort::OnSuspect(absl::Duration silence) {
  Say({.state = "suspect", .silence = silence});
}

void EdgePort::OnHealthy() {
  Say({.state = "healthy"});
}

void EdgePort::OnLost(const Status& why) {
  Say({.state = "lost", .reason = why});
}

void EdgePort::OnHealed(absl::Duration away, uint64_t frames_resent) {
  // It may go another way now, with another round trip than the plan's.
  if (const auto open = link()) open->GrowCredits(transport::kDefaultCredits);
  Say({.state = "healed", .silence = away, .frames_resent = frames_resent});
}

}  // namespace longhaul::worker
