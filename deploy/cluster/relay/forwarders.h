// The relay's work, divided among threads by the sending worker. A worker's thread takes frames out
// of the worker's port, holds them (delay_queue.h) and puts them into the ports of their receivers.
// Frames from one worker to another keep their order. Threads share only the ports and the room for
// frames in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/status.h"
#include "deploy/cluster/relay/delay_queue.h"
#include "deploy/cluster/relay/packet_port.h"
#include "run/file/link_quality.h"

namespace longhaul::relay {

// The destinations of frames, shared by all threads. The worker of MacAddress(n + 1) is at
// ports[n].
struct Routes {
  std::vector<std::shared_ptr<PacketPort>> ports;
  std::vector<LinkQuality> paths;  // paths[from * ports + to]
  std::vector<bool> connected;     // of each port
};

struct ForwardCounts {
  QueueCounts queue;
  uint64_t missed = 0;  // arrived faster than the relay read them
  Unsent unsent;
};

// Number of cores of this process, at most 4, because the workers need the same cores.
uint32_t ForwarderThreads();

class Forwarder;

// Not thread-safe. Every method waits for all threads, which answer between two batches of frames.
class Forwarders {
 public:
  // `threads`, at least 1, hold `most_bytes` together.
  static StatusOr<std::unique_ptr<Forwarders>> Start(uint32_t threads, size_t most_bytes);
  Forwarders(const Forwarders&) = delete;
  Forwarders& operator=(const Forwarders&) = delete;
  ~Forwarders();

  // Frames in flight stay, as with DelayQueue::Configure. Threads change one after the other. An
  // error changes nothing.
  Status Configure(Routes routes);

  // Totals since the start.
  ForwardCounts Counts();
  size_t held_bytes() const { return held_.now(); }
  uint32_t threads() const { return static_cast<uint32_t>(threads_.size()); }

 private:
  explicit Forwarders(size_t most_bytes);
  void CountMissed();

  HeldBytes held_;
  std::vector<std::unique_ptr<Forwarder>> threads_;
  std::shared_ptr<const Routes> routes_;
  uint64_t missed_ = 0;
};

}  // namespace longhaul::relay
