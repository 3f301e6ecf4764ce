#include "transport/p2p/core/outbox.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace longhaul::transport::internal {

void Outbox::Push(const FrameView& view, Link::SendDone done) {
  waiting_.push_back(std::make_shared<Frame>(
      Frame{.kind = wire::LinkKind::kData, .view = view, .done = std::move(done)}));
}

void Outbox::PushGoodbye() {
  ends_ = true;
  waiting_.push_back(std::make_shared<Frame>(
      Frame{.kind = wire::LinkKind::kGoodbye, .view = {}, .done = nullptr}));
}

Outbox::FramePtr Outbox::Take() {
  if (resent_ < sent_.size()) return sent_[resent_++];
  if (waiting_.empty()) return nullptr;
  if (!window_.MaySend() && waiting_.front()->kind != wire::LinkKind::kGoodbye) return nullptr;
  FramePtr frame = std::move(waiting_.front());
  waiting_.pop_front();
  frame->sequence = window_.Take();
  sent_.push_back(frame);
  ++resent_;
  return frame;
}

size_t Outbox::Following(size_t most) const {
  if (resent_ == 0) return 0;
  const Frame* last = sent_[resent_ - 1].get();
  const size_t bytes = last->view.size(), again = to_send_again();
  most = std::min({most, again + waiting_.size(), again + window_.left()});
  for (size_t i = 0; i < most; ++i) {
    const Frame* const next = (i < again ? sent_[resent_ + i] : waiting_[i - again]).get();
    if (!last->view.continues || next->view.size() != bytes) return i;
    last = next;
  }
  return most;
}

Status Outbox::OnAcknowledgement(uint64_t acknowledgement, uint32_t credits,
                                 std::vector<FramePtr>* finished) {
  LH_RETURN_IF_ERROR(window_.OnAcknowledgement(acknowledgement, credits));
  while (!sent_.empty() && sent_.front()->sequence <= acknowledgement) {
    FramePtr frame = std::move(sent_.front());
    sent_.pop_front();
    if (resent_ > 0) --resent_;
    frame->taken = true;
    if (frame->under_way == 0) finished->push_back(std::move(frame));
  }
  return absl::OkStatus();
}

Status Outbox::Resume(uint64_t received, uint32_t credits, std::vector<FramePtr>* finished) {
  LH_RETURN_IF_ERROR(OnAcknowledgement(received, credits, finished));
  resent_ = 0;
  return absl::OkStatus();
}

std::vector<Outbox::FramePtr> Outbox::DropWaiting() {
  const std::deque<FramePtr> waiting = std::exchange(waiting_, {});
  std::vector<FramePtr> dropped;
  for (const FramePtr& frame : waiting) {
    // The end of the lane is still to be said.
    (frame->kind == wire::LinkKind::kGoodbye ? waiting_.emplace_back() : dropped.emplace_back()) =
        frame;
  }
  return dropped;
}

std::vector<Outbox::FramePtr> Outbox::DropAll() {
  std::vector<FramePtr> dropped(sent_.begin(), sent_.end());
  dropped.insert(dropped.end(), waiting_.begin(), waiting_.end());
  sent_.clear();
  waiting_.clear();
  resent_ = 0;
  return dropped;
}

}  // namespace longhaul::transport::internal
