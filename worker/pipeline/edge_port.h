// The common interface of the ends of all kinds of edges. An attempt at a run ("epoch") opens their
// links, reports what they sent, and closes them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/ids.h"
#include "base/status.h"
#include "run/plan/plan.h"
#include "transport/p2p/link.h"

namespace longhaul::worker {

// What a port learns about its peer's link.
struct LinkHealth {
  std::string_view state;      // "suspect", "healthy", "lost", "healed": see transport/p2p/link.h
  absl::Duration silence;      // suspect: so far; healed: in total
  Status reason;               // lost: why
  uint64_t frames_resent = 0;  // healed
};

// Use of the link since the last call of TakeUse.
struct PortUse {
  uint64_t payload_bytes_sent = 0;  // messages with their headers
  uint64_t link_bytes_sent = 0;
  absl::Duration send_busy;  // time with at least one message in flight to the peer
  absl::Duration credit_wait;
  uint64_t nonfinite_tiles = 0;  // counted by the encoder
  // Bytes with headers of messages of at least five chunks, without each message's first chunk, and
  // the time from each first chunk to the last one. Their quotient is the link's rate while
  // messages arrive.
  uint64_t received_bytes = 0;
  absl::Duration receive_time;
};

class EdgePort : public transport::LinkHandler {
 public:
  virtual EdgeId edge() const = 0;
  virtual const CellId& peer() const = 0;
  // Receive credits with which the port's link is opened.
  virtual uint32_t credits() const = 0;
  // Call it before the first message.
  virtual void Attach(std::shared_ptr<transport::Link> link) = 0;
  // Flushes and ends the link. No callback runs after it returns.
  virtual void Close(Deadline deadline) = 0;
  // Call it once a step.
  virtual PortUse TakeUse() = 0;
  // Frames received so far. It grows as long as anything moves, however slow the link is.
  virtual uint64_t frames_received() const = 0;

  // Statistics of the link; nullopt before Attach and after the link's end. Any thread.
  std::optional<transport::LinkStats> Stats();

  // Forward the link's health to `on_health`, on the link's loop.
  void OnSuspect(absl::Duration silence) override;
  void OnHealthy() override;
  void OnLost(const Status& why) override;
  void OnHealed(absl::Duration away, uint64_t frames_resent) override;

 protected:
  // `on_health` may be null.
  explicit EdgePort(std::function<void(const LinkHealth&)> on_health)
      : on_health_(std::move(on_health)) {}
  // Null before Attach. Any thread.
  virtual std::shared_ptr<transport::Link> link() = 0;

 private:
  void Say(const LinkHealth& health) const;
  const std::function<void(const LinkHealth&)> on_health_;
};

}  // namespace longhaul::worker
