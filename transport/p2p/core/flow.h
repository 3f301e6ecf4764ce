// Sequence numbers, acknowledgements and credits of one lane, and the watch over a peer's silence.
// Pure: no I/O, no clock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Largest number of credits that a peer may grant or a user may ask for.
inline constexpr uint32_t kMaxCredits = 1 << 16;
// Credits of the control lane, on every link. Its messages are few and small; this bounds the
// frames held for acknowledgement.
inline constexpr uint32_t kControlCredits = 256;

// Maximum number of frames that are handled before their credits are returned to the peer.
inline constexpr uint32_t kMostUntold = 8;

// Which frames this side may send on a lane.
class SendWindow {
 public:
  // Sequences up to `limit` may be sent.
  explicit SendWindow(uint64_t limit) : limit_(limit) {}
  bool MaySend() const { return last_sent_ < limit_; }
  // The next frame's sequence, from 1.
  uint64_t Take() { return ++last_sent_; }
  uint64_t last_sent() const { return last_sent_; }
  uint64_t acknowledged() const { return acknowledged_; }
  // Takes the peer's acknowledgement and credits. Older ones are ignored, because frames of the two
  // connections overtake each other. kInvalidArgument for a frame that was never sent.
  Status OnAcknowledgement(uint64_t acknowledgement, uint32_t credits);

 private:
  uint64_t last_sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t limit_;
};

// Which frames this side accepts on a lane.
class ReceiveWindow {
 public:
  explicit ReceiveWindow(uint32_t credits) : opened_with_(credits), credits_(credits) {}
  // True if the frame is new, false if it is repeated after a break. kDataLoss if a frame is
  // missing or out of order.
  StatusOr<bool> Accept(uint64_t sequence);
  // Marks the last accepted frame as handled.
  void Handled() { handled_ = accepted_; }
  uint64_t handled() const { return handled_; }
  uint32_t credits() const { return credits_; }
  // Raises the number of credits. A smaller number changes nothing.
  void Grow(uint32_t credits);
  // Whether to send credits now: a quarter of the window or kMostUntold frames were handled since
  // the last time, or credits grew. The peer then neither runs out of credits nor holds many
  // frames.
  bool TellDue() const {
    return grown_ || handled_ - told_ >= std::min((credits_ + 3) / 4, kMostUntold);
  }
  bool TellPending() const { return grown_ || handled_ != told_; }
  void Told() {
    told_ = handled_;
    grown_ = false;
  }
  // Goes on over a new connection, in whose handshake the peer was told `told`. Its first frame may
  // be any frame that the peer has to send again.
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

  // Records a sign of life. True if it ends a suspicion.
  bool Heard(MonoTime now);
  // Must be called regularly. `stalled`: how long this side itself did not run; that time does not
  // count against the peer.
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
