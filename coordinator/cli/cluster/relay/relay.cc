#include "coordinator/cli/cluster/relay/relay.h"

#include <fmt/core.h>
#include <malloc.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "base/shutdown.h"
#include "base/unique_fd.h"
#include "coordinator/cli/cluster/relay/control.h"
#include "coordinator/cli/cluster/relay/delay_queue.h"
#include "coordinator/cli/cluster/relay/packet_port.h"

namespace longhaul::relay {
namespace {

// 10 Gbit/s for 400 ms.
constexpr size_t kMostHeldBytes = size_t{512} << 20;
constexpr size_t kDestinationBytes = 6;
constexpr unsigned long kTimerSlackNs = 1000;
constexpr int kNice = -10;
constexpr int kKeptBytes = 64 << 20;
constexpr uint64_t kControlEvent = ~uint64_t{0};
constexpr uint64_t kSignalEvent = kControlEvent - 1;

absl::Duration CpuTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

class Relay {
 public:
  Relay(UniqueFd epoll, UniqueFd listener)
      : epoll_(std::move(epoll)),
        listener_(std::move(listener)),
        queue_(std::random_device{}(), kMostHeldBytes) {}
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;
  // Until a signal.
  Status Run();

 private:
  Status Watch(int fd, uint64_t event);
  StatusOr<RelayReport> Serve(const Request& request);
  Status Configure(const RelayConfig& config);
  void Forward(uint32_t from);
  void Admit(uint32_t from, Arrival arrival);
  void ReleaseDue();
  // Until something comes or the next frame is due.
  int Wait(std::array<epoll_event, 64>* events);

  const UniqueFd epoll_, listener_;
  DelayQueue queue_;
  std::vector<std::string> devices_;
  std::vector<std::unique_ptr<PacketPort>> ports_;
  std::vector<Arrival> arrivals_;
  std::vector<std::vector<Frame>> outgoing_;  // of each port
};

Status Relay::Watch(int fd, uint64_t event) {
  epoll_event watched{.events = EPOLLIN, .data = {.u64 = event}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &watched) != 0) return FromErrno("epoll", errno);
  return absl::OkStatus();
}

Status Relay::Configure(const RelayConfig& config) {
  std::vector<std::string> devices;
  std::vector<bool> connected;
  for (const RelayPort& port : config.ports) {
    devices.push_back(port.device);
    connected.push_back(port.connected);
  }
  if (devices != devices_) {
    std::vector<std::unique_ptr<PacketPort>> ports;
    for (const std::string& device : devices) {
      LH_ASSIGN_OR_RETURN(auto port, PacketPort::Open(device));
      ports.push_back(std::move(port));
    }
    for (size_t i = 0; i < ports.size(); ++i) LH_RETURN_IF_ERROR(Watch(ports[i]->fd(), i));
    ports_ = std::move(ports);  // Closing a descriptor takes it out of the epoll.
    devices_ = std::move(devices);
    outgoing_.resize(ports_.size());
  }
  queue_.Configure(static_cast<uint32_t>(ports_.size()), config.paths, std::move(connected));
  return absl::OkStatus();
}

StatusOr<RelayReport> Relay::Serve(const Request& request) {
  if (request.configure) LH_RETURN_IF_ERROR(Configure(request.config));
  const QueueCounts& counts = queue_.counts();
  return RelayReport{.arrived_packets = counts.arrived,
                     .lost_packets = counts.lost,
                     .overflowed_packets = counts.overflowed,
                     .held_bytes = queue_.held_bytes(),
                     .cpu_time = CpuTime()};
}

void Relay::Admit(uint32_t from, Arrival arrival) {
  if (arrival.frame.size < kGsoHeaderBytes + kDestinationBytes) return;
  const auto* destination =
      reinterpret_cast<const uint8_t*>(arrival.frame.bytes.get()) + kGsoHeaderBytes;
  const uint32_t number = NumberOfMac(destination);
  if (number >= 1 && number <= ports_.size()) {
    queue_.Admit(from, number - 1, std::move(arrival.frame), arrival.time);
    return;
  }
  if ((destination[0] & 1) == 0) return;
  for (uint32_t to = 0; to < ports_.size(); ++to) {
    if (to == from) continue;
    const uint32_t size = arrival.frame.size;
    Frame copy{std::make_unique_for_overwrite<std::byte[]>(size), size, size};
    std::memcpy(copy.bytes.get(), arrival.frame.bytes.get(), size);
    queue_.Admit(from, to, std::move(copy), arrival.time);
  }
}

void Relay::Forward(uint32_t from) {
  arrivals_.clear();
  ports_[from]->Receive(&arrivals_);
  for (Arrival& arrival : arrivals_) Admit(from, std::move(arrival));
}

void Relay::ReleaseDue() {
  const MonoTime now = Now();
  while (std::optional<DelayQueue::Due> due = queue_.Release(now)) {
    outgoing_[due->to].push_back(std::move(due->frame));
  }
  for (size_t i = 0; i < ports_.size(); ++i) {
    if (outgoing_[i].empty()) continue;
    ports_[i]->Send(outgoing_[i]);
    outgoing_[i].clear();
  }
}

int Relay::Wait(std::array<epoll_event, 64>* events) {
  timespec limit{};
  const std::optional<MonoTime> next = queue_.NextRelease();
  if (next) {
    const absl::Duration left = longhaul::operator-(*next, Now());
    limit = absl::ToTimespec(std::max(left, absl::ZeroDuration()));
  }
  // Of Linux 5.11; the C library has a name for it since 2.35 only.
  return static_cast<int>(syscall(SYS_epoll_pwait2, epoll_.get(), events->data(),
                                  static_cast<int>(events->size()), next ? &limit : nullptr,
                                  nullptr, 0));
}

Status Relay::Run() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signal_fd) return FromErrno("signalfd", errno);
  LH_RETURN_IF_ERROR(Watch(signal_fd.get(), kSignalEvent));
  LH_RETURN_IF_ERROR(Watch(listener_.get(), kControlEvent));
  std::array<epoll_event, 64> events;
  while (true) {
    const int ready = Wait(&events);
    if (ready < 0 && errno != EINTR) return FromErrno("epoll", errno);
    for (int i = 0; i < ready; ++i) {
      const uint64_t event = events[static_cast<size_t>(i)].data.u64;
      if (event == kSignalEvent) return absl::OkStatus();
      if (event == kControlEvent) {
        ServeRequest(listener_.get(), [this](const Request& request) { return Serve(request); });
        break;  // The other events may be those of ports that are no more.
      }
      Forward(static_cast<uint32_t>(event));
    }
    ReleaseDue();
  }
}

}  // namespace

Status RunRelay(const std::string& socket_path) {
  BlockShutdownSignals();
  // Frames are due to the microsecond, on a machine that computes: this process sleeps most of the
  // time and should not queue behind those that do not. Where it is refused, it goes on as it is.
  prctl(PR_SET_TIMERSLACK, kTimerSlackNs);
  (void)setpriority(PRIO_PROCESS, 0, kNice);
  // Frames come and go; their memory stays, or every one would be paid for in page faults.
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  LH_RETURN_IF_ERROR(ProbePacketPort());
  LH_ASSIGN_OR_RETURN(UniqueFd listener, ListenForRequests(socket_path));
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return FromErrno("epoll", errno);
  return Relay(std::move(epoll), std::move(listener)).Run();
}

}  // namespace longhaul::relay
