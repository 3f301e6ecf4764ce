// Receives and sends the frames of a network interface through a packet socket. A frame is a whole
// GSO packet, up to 64 KB, after a header that tells how to cut the packet into segments
// (virtio_net_hdr). So 64 KB cost only one copy in and one copy out. Receive is for one thread at a
// time; all other functions are thread-safe.
#pragma once

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

// A frame is the virtio_net_hdr followed by the Ethernet frame.
inline constexpr size_t kGsoHeaderBytes = 10;
inline constexpr size_t kMostFrameBytes = kGsoHeaderBytes + 18 + 65536;

struct Arrival {
  Frame frame;
  MonoTime time;  // arrival in the kernel
};

// Frames that were dropped because they could not be sent.
struct Unsent {
  uint64_t refused = 0;  // the interface's queue was full
  uint64_t failed = 0;   // anything else
};

class PacketPort {
 public:
  // Opens the interface `device` of this process's network namespace. kFailedPrecondition: this
  // process cannot have packet sockets; the message names the missing right or kernel feature.
  // Other errors: by errno, such as for an interface that does not exist.
  static StatusOr<std::unique_ptr<PacketPort>> Open(const std::string& device);
  // For Open and tests. `socket` must be nonblocking and keep message boundaries. `device` is for
  // log lines.
  explicit PacketPort(UniqueFd socket, std::string device = "a test's");
  PacketPort(const PacketPort&) = delete;
  PacketPort& operator=(const PacketPort&) = delete;
  ~PacketPort();

  // Readable when frames have arrived. Valid while this object lives.
  int fd() const { return fd_.get(); }
  // Appends frames that have arrived, at most 32, to `*arrivals`. Omits frames that this side of
  // the interface sent. Never blocks. On an error appends nothing.
  void Receive(std::vector<Arrival>* arrivals);
  // Sends frames in order. Drops the frames that cannot be sent, and returns their counts. Logs the
  // first error of each kind other than a full queue. Never blocks.
  Unsent Send(std::span<Frame> frames);
  // Returns how many frames were dropped on arrival since the last call: there was no room, or they
  // were too long.
  uint64_t TakeMissed();

 private:
  struct Buffers;
  void LogFailure(int error);

  const UniqueFd fd_;
  const std::string device_;
  const std::unique_ptr<Buffers> buffers_;  // for received frames
  std::atomic<uint64_t> cut_ = 0;           // frames longer than allowed
  std::mutex mutex_;
  std::set<int> logged_;  // errors
};

// Checks that this process can have packet sockets with GSO. kFailedPrecondition: it cannot.
Status ProbePacketPort();

}  // namespace longhaul::relay
