#include "transport/p2p/core/flow.h"

#include <algorithm>
#include <utility>

namespace longhaul::transport::internal {

Status SendWindow::OnAcknowledgement(uint64_t acknowledgement, uint32_t credits) {
  if (acknowledgement > last_sent_) {
    return InvalidArgument("the peer acknowledges frame {}, but only {} were sent", acknowledgement,
                           last_sent_);
  }
  if (credits > kMaxCredits) {
    return InvalidArgument("the peer grants {} credits, at most {} are allowed", credits,
                           kMaxCredits);
  }
  acknowledged_ = std::max(acknowledged_, acknowledgement);
  limit_ = std::max(limit_, acknowledgement + credits);
  return absl::OkStatus();
}

StatusOr<bool> ReceiveWindow::Accept(uint64_t sequence) {
  const bool in_order = last_on_connection_ ? sequence == *last_on_connection_ + 1
                                            : sequence >= 1 && sequence <= accepted_ + 1;
  if (!in_order) {
    return DataLoss("expected frame {}, got frame {}", last_on_connection_.value_or(accepted_) + 1,
                    sequence);
  }
  last_on_connection_ = sequence;
  if (sequence <= accepted_) return false;
  accepted_ = sequence;
  return true;
}

void ReceiveWindow::Grow(uint32_t credits) {
  credits = std::min(credits, kMaxCredits);
  if (credits <= credits_) return;
  credits_ = credits;
  grown_ = true;
}

void ReceiveWindow::Resume(uint64_t told) {
  told_ = told;
  grown_ = credits_ > opened_with_;  // the handshake speaks of those
  last_on_connection_.reset();
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
