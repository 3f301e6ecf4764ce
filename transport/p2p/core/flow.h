// Sequence numbers, acknowledgements and credits of one lane, and the watch over a peer's silence.
// With n credits a peer may send n frames beyond the last frame that this side has handled. Pure:
// no I/O, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Largest number of credits for one lane.
inline constexpr uint32_t kMaxCredits = 1 << 16;
// Number of credits of the control lane, on every link. It only bounds the number of frames that
// are kept until they are acknowledged; messages on this lane are few and small.
inline constexpr uint32_t kControlCredits = 256;

// A side tells its peer of new credits at the latest when it has handled this many frames.
inline constexpr uint32_t kMostUntold = 8;

// Decides which frames this side may send on a lane.
class SendWindow {
 public:
  // Frames with sequence numbers up to `limit` may be sent.
  explicit SendWindow(uint64_t limit) : limit_(limit) {}
  bool MaySend() const { return last_sent_ < limit_; }
  // Returns how many more frames may be sent.
  uint64_t left() const { return limit_ - last_sent_; }
  // Counts one more frame as sent, and returns its sequence number; the first is 1. Does not check
  // MaySend.
  uint64_t Take() { return ++last_sent_; }
  uint64_t last_sent() const { return last_sent_; }
  uint64_t acknowledged() const { return acknowledged_; }
  // Takes the peer's acknowledgement (the last frame that the peer handled) and its credits.
  // Ignores numbers that are older than earlier ones: a link's two connections may deliver them out
  // of order. kInvalidArgument for a frame that was never sent, or too many credits.
  Status OnAcknowledgement(uint64_t acknowledgement, uint32_t credits);

 private:
  uint64_t last_sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t limit_;
};

// Decides which frames this side accepts on a lane.
class ReceiveWindow {
 public:
  explicit ReceiveWindow(uint32_t credits) : opened_with_(credits), credits_(credits) {}
  // Returns true for a new frame, and false for a frame that was received before the connection
  // broke and is now repeated. kDataLoss if a frame is missing or out of order.
  StatusOr<bool> Accept(uint64_t sequence);
  // Marks the last accepted frame as handled.
  void Handled() { handled_ = accepted_; }
  uint64_t handled() const { return handled_; }
  uint32_t credits() const { return credits_; }
  // Raises the number of credits. A smaller number changes nothing.
  void Grow(uint32_t credits);
  // Returns true if the peer should be told of new credits now: min(a quarter of the credits,
  // kMostUntold) frames were handled since Told, or the number of credits grew. So the peer does
  // not run out of credits, and keeps few frames that are not acknowledged.
  bool TellDue() const {
    return grown_ || handled_ - told_ >= std::min((credits_ + 3) / 4, kMostUntold);
  }
  // Returns true if there is anything new to tell the peer.
  bool TellPending() const { return grown_ || handled_ != told_; }
  // Records that the peer was told.
  void Told() {
    told_ = handled_;
    grown_ = false;
  }
  // Goes on over a new connection. In the handshake of this connection the peer was told that
  // frames up to `told` were handled. The peer's first frame may be any from 1 to the next new one.
  void Resume(uint64_t told);

 private:
  const uint32_t opened_with_;
  uint32_t credits_;
  bool grown_ = false;  // credits grew, and the peer was not told yet
  uint64_t accepted_ = 0;
  uint64_t handled_ = 0;
  uint64_t told_ = 0;
  std::optional<uint64_t> last_on_connection_ = 0;  // nullopt: no frame yet on a new connection
};

// Decides from the peer's signs of life whether the peer is suspect or gone.
class PeerWatch {
 public:
  enum class Verdict { kNone, kSuspect, kGone };
  PeerWatch(const LinkOptions& options, MonoTime now)
      : suspect_after_(options.suspect_after),
        peer_timeout_(options.peer_timeout),
        last_heard_(now) {}

  // Records a sign of life. Returns true if the peer was suspect.
  bool Heard(MonoTime now);
  // Call it regularly. Returns kSuspect once for each silence of suspect_after, and kGone if the
  // silence is peer_timeout or longer. `stalled`: how long this side itself did not run since the
  // last call; this time does not count as silence.
  Verdict Tick(MonoTime now, absl::Duration stalled);
  MonoTime last_heard() const { return last_heard_; }
  absl::Duration Silence(MonoTime now) const { return now - last_heard_; }
  absl::Duration longest_silence() const { return longest_; }
  bool suspect() const { return suspect_; }

 private:
  absl::Duration suspect_after_;
  absl::Duration peer_timeout_;
  MonoTime last_heard_;
  absl::Duration longest_;
  bool suspect_ = false;
};

}  // namespace longhaul::transport::internal
