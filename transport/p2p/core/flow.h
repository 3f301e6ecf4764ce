// Sequence numbers, acknowledgements and credits of one lane, and the watch over a peer's silence.
// Pure: no I/O, no clock.
#ifndef LONGHAUL_TRANSPORT_P2P_CORE_FLOW_H_
#define LONGHAUL_TRANSPORT_P2P_CORE_FLOW_H_

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/status.h"
#include "transport/p2p/link.h"

namespace longhaul::transport::internal {

// Largest number of credits that a peer may grant or a user may ask for.
inline constexpr uint32_t kMaxCredits = 1 << 16;
// Of the control lane, on every link: its messages are few and small, and this only bounds what is
// held for the peer's acknowledgement.
inline constexpr uint32_t kControlCredits = 256;

// Frames that are dealt with before the peer is told so, at most.
inline constexpr uint32_t kMostUntold = 8;

// What this side may send on a lane.
class SendWindow {
 public:
  // Sequences up to `limit` may be sent.
  explicit SendWindow(uint64_t limit) : limit_(limit) {}
  bool MaySend() const { return last_sent_ < limit_; }
  // The next frame's sequence, from 1.
  uint64_t Take() { return ++last_sent_; }
  uint64_t last_sent() const { return last_sent_; }
  uint64_t acknowledged() const { return acknowledged_; }
  // What a frame of the peer says about this direction. Old news (frames of the two connections
  // overtake each other) are ignored; kInvalidArgument for what was never sent.
  Status OnAcknowledgement(uint64_t acknowledgement, uint32_t credits);

 private:
  uint64_t last_sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t limit_;
};

// What this side takes on a lane.
class ReceiveWindow {
 public:
  explicit ReceiveWindow(uint32_t credits) : opened_with_(credits), credits_(credits) {}
  // Whether the frame is new; false: it came before a break and comes again. kDataLoss if a frame
  // is missing or the order of the connection is broken.
  StatusOr<bool> Accept(uint64_t sequence);
  // The frame last accepted has been dealt with.
  void Handled() { handled_ = accepted_; }
  uint64_t handled() const { return handled_; }
  uint32_t credits() const { return credits_; }
  // Fewer than before change nothing.
  void Grow(uint32_t credits);
  // A quarter of the window was used since the peer was last told, or as much as is worth a message
  // anyway: tell it before it runs dry, and while what it holds for us is still little. Or there
  // are more credits.
  bool TellDue() const {
    return grown_ || handled_ - told_ >= std::min((credits_ + 3) / 4, kMostUntold);
  }
  bool TellPending() const { return grown_ || handled_ != told_; }
  void Told() {
    told_ = handled_;
    grown_ = false;
  }
  // A new connection, for which the peer was told `told`: its first frame may be any that the peer
  // has to send again.
  void Resume(uint64_t told);

 private:
  const uint32_t opened_with_;
  uint32_t credits_;
  bool grown_ = false;  // and the peer does not know
  uint64_t accepted_ = 0;
  uint64_t handled_ = 0;
  uint64_t told_ = 0;
  std::optional<uint64_t> last_on_connection_ = 0;  // nullopt: no frame yet on a new connection
};

// Turns signs of life and their absence into suspicion and the end.
class PeerWatch {
 public:
  enum class Verdict { kNone, kSuspect, kGone };
  PeerWatch(const LinkOptions& options, MonoTime now)
      : suspect_after_(options.suspect_after),
        peer_timeout_(options.peer_timeout),
        last_heard_(now) {}

  // True if this ends a suspicion.
  bool Heard(MonoTime now);
  // To be called regularly. `stalled`: how much longer than that this side itself was away; that
  // is nothing to blame the peer for.
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

#endif  // LONGHAUL_TRANSPORT_P2P_CORE_FLOW_H_
