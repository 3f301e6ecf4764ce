// An interface's frames, as a packet socket gives and takes them: whole GSO packets, with the
// header that says how to cut them (virtio_net_hdr), so that 64 KB cost one copy in and one copy
// out. One thread receives; any thread may send, and ask for the rest.
#ifndef LONGHAUL_COORDINATOR_CLI_CLUSTER_RELAY_PACKET_PORT_H_
#define LONGHAUL_COORDINATOR_CLI_CLUSTER_RELAY_PACKET_PORT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "coordinator/cli/cluster/relay/delay_queue.h"

namespace longhaul::relay {

// A frame's bytes begin with the virtio_net_hdr, then comes Ethernet.
inline constexpr size_t kGsoHeaderBytes = 10;
inline constexpr size_t kMostFrameBytes = kGsoHeaderBytes + 18 + 65536;

struct Arrival {
  Frame frame;
  MonoTime time;  // when the kernel got it
};

class PacketPort {
 public:
  // Of an interface in this process' network namespace. kFailedPrecondition with what is missing.
  static StatusOr<std::unique_ptr<PacketPort>> Open(const std::string& device);
  // For tests: what such a socket would give comes from `socket`, whose messages have a beginning
  // and an end; nonblocking.
  explicit PacketPort(UniqueFd socket);
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;
  ~PacketPort();

  int fd() const { return fd_.get(); }
  // What has come, a bounded number; nothing of what this side sent. Never blocks.
  void Receive(std::vector<Arrival>* arrivals);
  // How many did not fit the interface's queue and are dropped. Never blocks.
  uint64_t Send(std::span<Frame> frames) const;
  // How many frames came for which there was no room, since the last call.
  uint64_t TakeMissed();

 private:
  struct Buffers;
  const UniqueFd fd_;
  const std::unique_ptr<Buffers> buffers_;  // of what is received
  std::atomic<uint64_t> cut_ = 0;           // larger than a frame may be
};

// OK if this kernel lets us do so.
Status ProbePacketPort();

}  // namespace longhaul::relay

#endif  // LONGHAUL_COORDINATOR_CLI_CLUSTER_RELAY_PACKET_PORT_H_
