// An interface's frames, as a packet socket gives and takes them: whole GSO packets, with the
// header that says how to cut them (virtio_net_hdr), so that 64 KB cost one copy in and one copy
// out. One thread receives; any thread may send, and ask for the rest.
#ifndef LONGHAUL_DEPLOY_CLUSTER_RELAY_PACKET_PORT_H_
#define LONGHAUL_DEPLOY_CLUSTER_RELAY_PACKET_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "deploy/cluster/relay/delay_queue.h"

namespace longhaul::relay {

// A frame's bytes begin with the virtio_net_hdr, then comes Ethernet.
inline constexpr size_t kGsoHeaderBytes = 10;
inline constexpr size_t kMostFrameBytes = kGsoHeaderBytes + 18 + 65536;

struct Arrival {
  Frame frame;
  MonoTime time;  // when the kernel got it
};

// Frames that were dropped because they could not be sent.
struct Unsent {
  uint64_t refused = 0;  // the interface's queue was full
  uint64_t failed = 0;   // anything else
};

class PacketPort {
 public:
  // Of an interface in this process' network namespace. kFailedPrecondition with what is missing.
  static StatusOr<std::unique_ptr<PacketPort>> Open(const std::string& device);
  // For tests: what such a socket would give comes from `socket`, whose messages have a beginning
  // and an end; nonblocking.
  explicit PacketPort(UniqueFd socket, std::string device = "a test's");
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;
  ~PacketPort();

  int fd() const { return fd_.get(); }
  // What has come, a bounded number; nothing of what this side sent. Never blocks.
  void Receive(std::vector<Arrival>* arrivals);
  // What cannot be sent is dropped, as a queue does; an error that is no full queue is a line in
  // the log when it comes for the first time. Never blocks.
  Unsent Send(std::span<Frame> frames);
  // How many frames came for which there was no room, since the last call.
  uint64_t TakeMissed();

 private:
  struct Buffers;
  void LogFailure(int error);

  const UniqueFd fd_;
  const std::string device_;
  const std::unique_ptr<Buffers> buffers_;  // of what is received
  std::atomic<uint64_t> cut_ = 0;           // larger than a frame may be
  std::mutex mutex_;
  std::set<int> logged_;  // errors
};

// OK if this kernel lets us do so.
Status ProbePacketPort();

}  // namespace longhaul::relay

#endif  // LONGHAUL_DEPLOY_CLUSTER_RELAY_PACKET_PORT_H_
