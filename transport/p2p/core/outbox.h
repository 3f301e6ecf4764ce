// One lane's frames on their way out: they wait for credits, are handed to a channel, and are held
// until the peer has acknowledged them, since a new connection may have to send them again. Pure:
// who gets a frame back from here reports its end to whom it belongs.
#ifndef LONGHAUL_TRANSPORT_P2P_CORE_OUTBOX_H_
#define LONGHAUL_TRANSPORT_P2P_CORE_OUTBOX_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "proto/wire/link_header.h"
#include "transport/p2p/core/flow.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

class Outbox {
 public:
  struct Frame {
    wire::LinkKind kind = wire::LinkKind::kData;
    FrameView view;
    Link::SendDone done;     // empty for a goodbye
    uint64_t sequence = 0;   // from the first time that it is sent
    uint32_t under_way = 0;  // connections that still read its bytes
    bool taken = false;      // acknowledged
  };
  using FramePtr = std::shared_ptr<Frame>;

  // The peer grants `credits` before its first frame.
  explicit Outbox(uint64_t credits) : window_(credits) {}

  void Push(const FrameView& view, Link::SendDone done);
  // Behind everything else; needs no credit. Once.
  void PushGoodbye();
  bool ends() const { return ends_; }

  // The next frame to hand to the channel, or null: what has to be sent again comes first.
  FramePtr Take();
  // Frames that this connection was given and the peer has not acknowledged.
  bool under_way() const { return resent_ > 0; }
  uint64_t acknowledged() const { return window_.acknowledged(); }
  // Frames that were sent on an earlier connection and Take has not given again yet.
  size_t to_send_again() const { return sent_.size() - resent_; }

  // What a frame of the peer says about this lane. Appends what is taken and no longer read by any
  // channel; a frame that is still read is its channel's to finish. kInvalidArgument for what was
  // never sent.
  Status OnAcknowledgement(uint64_t acknowledgement, uint32_t credits,
                           std::vector<FramePtr>* finished);
  // A new connection whose peer said that it has `received`. As OnAcknowledgement; then the rest is
  // to be sent again. It may say less than it has acknowledged: that came on the old connection
  // while the new one was being made.
  Status Resume(uint64_t received, uint32_t credits, std::vector<FramePtr>* finished);

  // Frames that were never sent: nobody will take them.
  std::vector<FramePtr> DropWaiting();
  // Every frame that is left. No channel may still read them.
  std::vector<FramePtr> DropAll();

  bool waiting() const { return !waiting_.empty(); }
  bool empty() const { return waiting_.empty() && sent_.empty(); }

 private:
  SendWindow window_;
  std::deque<FramePtr> sent_;  // by sequence, without gaps
  size_t resent_ = 0;          // of sent_, those that this connection has been given
  std::deque<FramePtr> waiting_;
  bool ends_ = false;
};

}  // namespace longhaul::transport::internal

#endif  // LONGHAUL_TRANSPORT_P2P_CORE_OUTBOX_H_
