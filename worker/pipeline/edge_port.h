// What the ends of all kinds of edges have in common: an epoch opens their links, reports what they
// sent, and closes them.
#ifndef LONGHAUL_WORKER_PIPELINE_EDGE_PORT_H_
#define LONGHAUL_WORKER_PIPELINE_EDGE_PORT_H_

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

// What a link's handler hears about its peer.
struct LinkHealth {
  std::string_view state;      // "suspect", "healthy", "lost", "healed": see transport/p2p/link.h
  absl::Duration silence;      // suspect: so far; healed: in all
  Status reason;               // lost: why
  uint64_t frames_resent = 0;  // healed
};

// Since the last call of TakeUse.
struct PortUse {
  uint64_t payload_bytes_sent = 0;  // messages and their headers
  uint64_t link_bytes_sent = 0;
  absl::Duration send_busy;  // time with a message on its way to the peer
  absl::Duration credit_wait;
  uint64_t nonfinite_tiles = 0;  // seen by the encoder
  // What came behind the first chunks of messages of at least five chunks, with all headers, and
  // from these to the last ones: the link's rate while messages arrive.
  uint64_t received_bytes = 0;
  absl::Duration receive_time;
};

class EdgePort : public transport::LinkHandler {
 public:
  virtual EdgeId edge() const = 0;
  virtual const CellId& peer() const = 0;
  // Credits for opening the port's link.
  virtual uint32_t credits() const = 0;
  // Before the first message.
  virtual void Attach(std::shared_ptr<transport::Link> link) = 0;
  // Flushes, then ends the link and no longer calls anything of ours.
  virtual void Close(Deadline deadline) = 0;
  // Once a step.
  virtual PortUse TakeUse() = 0;
  // Frames of this link that came so far: something moves, however slow the link is.
  virtual uint64_t frames_received() const = 0;

  // Of the link; nullopt before it is attached and after its end. Any thread.
  std::optional<transport::LinkStats> Stats();

  // What a link says of its health goes to `on_health`, on the link's loop.
  void OnSuspect(absl::Duration silence) override;
  void OnHealthy() override;
  void OnLost(const Status& why) override;
  void OnHealed(absl::Duration away, uint64_t frames_resent) override;

 protected:
  // `on_health`: or null.
  explicit EdgePort(std::function<void(const LinkHealth&)> on_health)
      : on_health_(std::move(on_health)) {}
  // Null before it is attached. Any thread.
  virtual std::shared_ptr<transport::Link> link() = 0;

 private:
  void Say(const LinkHealth& health) const;
  const std::function<void(const LinkHealth&)> on_health_;
};

}  // namespace longhaul::worker

#endif  // LONGHAUL_WORKER_PIPELINE_EDGE_PORT_H_
