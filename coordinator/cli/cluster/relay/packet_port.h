// An interface's frames, as a packet socket gives and takes them: whole GSO packets, with the
// header that says how to cut them (virtio_net_hdr), so that 64 KB cost one copy in and one copy
// out. Not thread-safe.
#ifndef LONGHAUL_COORDINATOR_CLI_CLUSTER_RELAY_PACKET_PORT_H_
#define LONGHAUL_COORDINATOR_CLI_CLUSTER_RELAY_PACKET_PORT_H_

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
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;
  ~PacketPort();

  int fd() const { return fd_.get(); }
  // What has come, a bounded number; nothing of what this side sent. Never blocks.
  void Receive(std::vector<Arrival>* arrivals);
  // What does not fit the interface's queue is dropped, and counted there.
  void Send(std::span<Frame> frames);

 private:
  explicit PacketPort(UniqueFd fd);
  struct Buffers;
  const UniqueFd fd_;
  const std::unique_ptr<Buffers> buffers_;
};

// OK if this kernel lets us do so.
Status ProbePacketPort();

}  // namespace longhaul::relay

#endif  // LONGHAUL_COORDINATOR_CLI_CLUSTER_RELAY_PACKET_PORT_H_
