// Forwards the relay's frames, on several threads. Each sending worker belongs to one thread. The
// thread takes frames out of the worker's port (packet_port.h), holds them (delay_queue.h) and puts
// them into the ports of their receivers. So frames from one worker to another keep their order.
// Threads share only the ports and the limit of bytes in flight. Workers are counted from 0 here.
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
  std::vector<std::shared_ptr<PacketPort>> ports;  // never null
  std::vector<LinkQuality> paths;                  // paths[from * ports.size() + to]
  std::vector<bool> connected;                     // of each port
};

struct ForwardCounts {
  QueueCounts queue;
  uint64_t missed = 0;  // arrived faster than the relay read them, or were too long
  Unsent unsent;        // due, but could not be sent
};

// Returns a good number of threads: the number of cores of this process, but at most 4, because the
// workers need the same cores.
uint32_t ForwarderThreads();

class Forwarder;

// Not thread-safe. Configure and Counts block until every thread has answered. A thread answers
// between two batches of frames.
class Forwarders {
 public:
  // Starts `threads` threads, at least 1. All threads together hold at most `most_bytes` of frames.
  // Errors: by errno.
  static StatusOr<std::unique_ptr<Forwarders>> Start(uint32_t threads, size_t most_bytes);
  Forwarders(const Forwarders&) = delete;
  Forwarders& operator=(const Forwarders&) = delete;
  // Drops the frames in flight, and waits for the threads.
  ~Forwarders();

  // Replaces the routes, in one thread after the other. Frames in flight stay, as with
  // DelayQueue::Configure. Errors: by errno; then nothing has changed.
  Status Configure(Routes routes);

  // Returns totals since the start.
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
