// Outgoing frames of one lane. A frame waits for a credit, is handed to a connection, and is kept
// until the peer acknowledges it, because it may have to be sent again on a new connection. Pure:
// the caller runs the `done` of the frames that these methods return.
#pragma once

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
    uint64_t sequence = 0;   // set when the frame is first sent
    uint32_t under_way = 0;  // number of connections that still read its bytes
    bool taken = false;      // acknowledged
  };
  using FramePtr = std::shared_ptr<Frame>;

  // `credits`: the credits that the peer granted in the handshake.
  explicit Outbox(uint64_t credits) : window_(credits) {}

  // Queues a caller's frame, without a copy of its bytes. `done` must not be empty.
  void Push(const FrameView& view, Link::SendDone done);
  // Queues the last frame, which needs no credit. Call it once.
  void PushGoodbye();
  // Returns true after PushGoodbye.
  bool ends() const { return ends_; }

  // Returns the next frame to hand to the connection; frames to send again come first. Null: there
  // is no frame, or no credit for it.
  FramePtr Take();
  // Returns how many of the frames that Take returns next belong to the message of the frame that
  // it returned last, and are as long as that frame: frames that are here, and that need no credit
  // which the peer has still to grant. At most `most`.
  size_t Following(size_t most) const;
  // Returns true if the connection has frames that the peer has not acknowledged.
  bool under_way() const { return resent_ > 0; }
  uint64_t acknowledged() const { return window_.acknowledged(); }
  // Returns how many frames that were sent on an earlier connection Take has still to return.
  size_t to_send_again() const { return sent_.size() - resent_; }

  // Takes the peer's acknowledgement and credits. Appends the acknowledged frames to `finished`,
  // except those that a connection still reads: the connection's `done` finishes these.
  // kInvalidArgument for a frame that was never sent.
  Status OnAcknowledgement(uint64_t acknowledgement, uint32_t credits,
                           std::vector<FramePtr>* finished);
  // Goes on over a new connection. The peer has the frames up to `received`, which are handled as
  // in OnAcknowledgement, also for errors. Take returns all later frames again. `received` may be
  // less than was acknowledged: an acknowledgement may have come on the old connection after the
  // handshake began.
  Status Resume(uint64_t received, uint32_t credits, std::vector<FramePtr>* finished);

  // Drops and returns the frames that were never sent, except a goodbye.
  std::vector<FramePtr> DropWaiting();
  // Drops and returns all frames. No connection may still read them.
  std::vector<FramePtr> DropAll();

  // Returns true if Take returns null though there is a frame.
  bool waits_for_credit() const {
    return resent_ == sent_.size() && !waiting_.empty() && !window_.MaySend() &&
           waiting_.front()->kind != wire::LinkKind::kGoodbye;
  }
  bool empty() const { return waiting_.empty() && sent_.empty(); }

 private:
  SendWindow window_;
  std::deque<FramePtr> sent_;  // by sequence, without gaps
  size_t resent_ = 0;          // number of frames of sent_ given to this connection
  std::deque<FramePtr> waiting_;
  bool ends_ = false;
};

}  // namespace longhaul::transport::internal
