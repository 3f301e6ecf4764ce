#include "deploy/cluster/relay/packet_port.h"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/log.h"

namespace longhaul::relay {
namespace {

constexpr size_t kBatch = 32;
// Frames above this size stay in the buffer that they were received into; smaller ones are copied,
// so that acknowledgements do not hold 64 KB each.
constexpr uint32_t kLeastKept = 16 * 1024;
// Room for skbs that wait to be read, and for skbs in the interface's queue.
constexpr int kSocketBytes = 64 << 20;

Frame Allocate(uint32_t capacity) {
  return {std::make_unique_for_overwrite<std::byte[]>(capacity), 0, capacity};
}

StatusOr<UniqueFd> OpenSocket() {
  // Protocol 0: nothing is received until the socket is bound to its interface.
  UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  if (!fd || setsockopt(fd.get(), SOL_PACKET, PACKET_VNET_HDR, &on, sizeof on) != 0 ||
      setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on) != 0) {
    return FailedPrecondition(
        "delay, jitter and loss need packet sockets, which this process cannot have "
        "({}): they take CAP_NET_RAW (docker run --cap-add NET_RAW) and a kernel with "
        "CONFIG_PACKET, 4.20 or newer",
        std::strerror(errno));
  }
  return fd;
}

// When the kernel got the message, by the clock that does not jump.
MonoTime ArrivalTime(msghdr& message, MonoTime now, std::chrono::nanoseconds wall_now) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec stamp;
    std::memcpy(&stamp, CMSG_DATA(c), sizeof stamp);
    const auto age =
        wall_now - std::chrono::seconds(stamp.tv_sec) - std::chrono::nanoseconds(stamp.tv_nsec);
    // The wall clock may have jumped.
    return now + -absl::FromChrono(std::clamp<std::chrono::nanoseconds>(
                     age, std::chrono::nanoseconds(0), std::chrono::seconds(1)));
  }
  return now;
}

}  // namespace

struct PacketPort::Buffers {
  std::array<Frame, kBatch> frames;
  std::array<iovec, kBatch> vectors;
  std::array<mmsghdr, kBatch> messages;
  std::array<std::array<char, CMSG_SPACE(sizeof(timespec))>, kBatch> control;
};

PacketPort::PacketPort(UniqueFd fd, std::string device)
    : fd_(std::move(fd)), device_(std::move(device)), buffers_(std::make_unique<Buffers>()) {}

PacketPort::~PacketPort() = default;

StatusOr<std::unique_ptr<PacketPort>> PacketPort::Open(const std::string& device) {
  LH_ASSIGN_OR_RETURN(UniqueFd opened, OpenSocket());
  auto port = std::make_unique<PacketPort>(std::move(opened), device);
  const int fd = port->fd();
  const int on = 1;
  // More than an unprivileged process may ask for; where it is refused, the defaults do.
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &kSocketBytes, sizeof kSocketBytes);
  (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &kSocketBytes, sizeof kSocketBytes);
  (void)setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  sockaddr_ll address{};
  address.sll_family = AF_PACKET;
  address.sll_protocol = htons(ETH_P_ALL);
  address.sll_ifindex = static_cast<int>(if_nametoindex(device.c_str()));
  if (address.sll_ifindex == 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return FromErrno(fmt::format("cannot open the interface {}", device), errno);
  }
  return port;
}

void PacketPort::Receive(std::vector<Arrival>* arrivals) {
  Buffers& b = *buffers_;
  for (size_t i = 0; i < kBatch; ++i) {
    if (b.frames[i].bytes == nullptr) b.frames[i] = Allocate(kMostFrameBytes);
    b.vectors[i] = {b.frames[i].bytes.get(), kMostFrameBytes};
    b.messages[i] = {};
    b.messages[i].msg_hdr.msg_iov = &b.vectors[i];
    b.messages[i].msg_hdr.msg_iovlen = 1;
    b.messages[i].msg_hdr.msg_control = b.control[i].data();
    b.messages[i].msg_hdr.msg_controllen = b.control[i].size();
  }
  const int got = recvmmsg(fd(), b.messages.data(), kBatch, MSG_DONTWAIT, nullptr);
  const MonoTime now = Now();
  const auto wall_now = std::chrono::system_clock::now().time_since_epoch();
  for (int i = 0; i < got; ++i) {
    msghdr& message = b.messages[i].msg_hdr;
    const uint32_t size = b.messages[i].msg_len;
    if ((message.msg_flags & MSG_TRUNC) != 0) ++cut_;
    if ((message.msg_flags & MSG_TRUNC) != 0 || size <= kGsoHeaderBytes) continue;
    Frame frame;
    if (size < kLeastKept) {
      frame = Allocate(size);
      std::memcpy(frame.bytes.get(), b.frames[i].bytes.get(), size);
    } else {
      frame = std::exchange(b.frames[i], {});
    }
    frame.size = size;
    arrivals->push_back({std::move(frame), ArrivalTime(message, now, wall_now)});
  }
}

Unsent PacketPort::Send(std::span<Frame> frames) {
  std::array<iovec, kBatch> vectors;
  std::array<mmsghdr, kBatch> messages;
  Unsent unsent;
  while (!frames.empty()) {
    const size_t batch = std::min(frames.size(), kBatch);
    for (size_t i = 0; i < batch; ++i) {
      vectors[i] = {frames[i].bytes.get(), frames[i].size};
      messages[i] = {};
      messages[i].msg_hdr.msg_iov = &vectors[i];
      messages[i].msg_hdr.msg_iovlen = 1;
    }
    const int sent =
        sendmmsg(fd(), messages.data(), static_cast<unsigned>(batch), MSG_DONTWAIT | MSG_NOSIGNAL);
    // The first one that fails is dropped.
    if (sent <= 0) {
      const int error = errno;
      const bool full = error == ENOBUFS || error == EAGAIN;
      ++(full ? unsent.refused : unsent.failed);
      if (!full) LogFailure(error);
    }
    frames = frames.subspan(sent > 0 ? static_cast<size_t>(sent) : 1);
  }
  return unsent;
}

void PacketPort::LogFailure(int error) {
  {
    const std::lock_guard lock(mutex_);
    if (!logged_.insert(error).second) return;
  }
  LogWarning(
      "a packet for the interface {} could not be sent and was dropped: {}; further ones are "
      "counted",
      device_, std::strerror(error));
}

uint64_t PacketPort::TakeMissed() {
  tpacket_stats stats{};  // reading it sets it to zero
  socklen_t size = sizeof stats;
  if (getsockopt(fd(), SOL_PACKET, PACKET_STATISTICS, &stats, &size) != 0) stats = {};
  return stats.tp_drops + cut_.exchange(0);
}

Status ProbePacketPort() {
  return OpenSocket().status();
}

}  // namespace longhaul::relay
