#include "transport/p2p/core/flow.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace longhaul::transport::internal {

Status SendWindow::OnAcknowledgement(uint64_t acknowledgement, uint32_t credits) {
  if (acknowledgement > last_sent_) {
    return absl::InvalidArgumentError(fmt::format(
        "the peer acknowledges frame {}, but only {} were sent", acknowledgement, last_sent_));
  }
  if (credits > kMaxCredits) {
    return absl::InvalidArgumentError(
        fmt::format("the peer grants {} credits, at most {} are allowed", credits, kMaxCredits));
  }
  acknowledged_ = std::max(acknowledged_, acknowledgement);
  limit_ = std::max(limit_, acknowledgement + credits);
  return absl::OkStatus();
}

Status ReceiveWindow::Accept(uint64_t sequence) {
  if (sequence != accepted_ + 1) {
    return absl::DataLossError(
        fmt::format("expected frame {}, got frame {}", accepted_ + 1, sequence));
  }
  accepted_ = sequence;
  return absl::OkStatus();
}

bool PeerWatch::Heard(MonoTime now) {
  longest_ = std::max(longest_, Silence(now));
  last_heard_ = now;
  return std::exchange(suspect_, false);
}

PeerWatch::Verdict PeerWatch::Tick(MonoTime now, absl::Duration stalled) {
  last_heard_ = std::min(now, last_heard_ + stalled);
  const absl::Duration silence = Silence(now);
  if (silence >= peer_timeout_) return Verdict::kGone;
  if (silence >= suspect_after_ && !suspect_) {
    suspect_ = true;
    return Verdict::kSuspect;
  }
  return Verdict::kNone;
}

}  // namespace longhaul::transport::internal
