#include "deploy/cluster/relay/relay.h"

#include <fmt/core.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>

#include <array>
#include <cerrno>
#include <memory>
#include <utility>
#include <vector>

#include "base/shutdown.h"
#include "base/unique_fd.h"
#include "deploy/cluster/relay/control.h"
#include "deploy/cluster/relay/forwarders.h"

namespace longhaul::relay {
namespace {

// 10 Gbit/s for 400 ms.
constexpr size_t kMostHeldBytes = size_t{512} << 20;
constexpr int kNice = -10;
constexpr int kKeptBytes = 64 << 20;

absl::Duration CpuTime() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) + absl::DurationFromTimeval(usage.ru_stime);
}

// What requests change and ask.
class Relay {
 public:
  explicit Relay(std::unique_ptr<Forwarders> forwarders) : forwarders_(std::move(forwarders)) {}
  StatusOr<RelayReport> Serve(const Request& request);

 private:
  Status Configure(const RelayConfig& config);

  const std::unique_ptr<Forwarders> forwarders_;
  std::vector<std::string> devices_;
  std::vector<std::shared_ptr<PacketPort>> ports_;
};

Status Relay::Configure(const RelayConfig& config) {
  std::vector<std::string> devices;
  Routes routes{.ports = ports_, .paths = config.paths, .connected = {}};
  for (const RelayPort& port : config.ports) {
    devices.push_back(port.device);
    routes.connected.push_back(port.connected);
  }
  if (devices != devices_) {
    routes.ports.clear();
    for (const std::string& device : devices) {
      LH_ASSIGN_OR_RETURN(auto port, PacketPort::Open(device));
      routes.ports.push_back(std::move(port));
    }
  }
  std::vector<std::shared_ptr<PacketPort>> ports = routes.ports;
  LH_RETURN_IF_ERROR(forwarders_->Configure(std::move(routes)));
  ports_ = std::move(ports);
  devices_ = std::move(devices);
  return absl::OkStatus();
}

StatusOr<RelayReport> Relay::Serve(const Request& request) {
  if (request.configure) LH_RETURN_IF_ERROR(Configure(request.config));
  const ForwardCounts counts = forwarders_->Counts();
  return RelayReport{.arrived_packets = counts.queue.arrived,
                     .lost_packets = counts.queue.lost,
                     .overflowed_packets = counts.queue.overflowed,
                     .missed_packets = counts.missed,
                     .refused_packets = counts.unsent.refused,
                     .failed_packets = counts.unsent.failed,
                     .held_bytes = forwarders_->held_bytes(),
                     .threads = forwarders_->threads(),
                     .cpu_time = CpuTime()};
}

Status ServeUntilSignal(int listener, Relay* relay) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  const UniqueFd signal_fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signal_fd) return FromErrno("signalfd", errno);
  std::array<pollfd, 2> ready = {pollfd{signal_fd.get(), POLLIN, 0}, pollfd{listener, POLLIN, 0}};
  while (true) {
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return FromErrno("poll", errno);
    if (ready[0].revents != 0) return absl::OkStatus();
    if (ready[1].revents != 0) {
      ServeRequest(listener, [&](const Request& request) { return relay->Serve(request); });
    }
  }
}

}  // namespace

Status RunRelay(const std::string& socket_path, uint32_t threads) {
  BlockShutdownSignals();
  // On a machine that computes: this process sleeps most of the time and should not queue behind
  // those that do not. Where it is refused, it goes on as it is. Threads inherit it.
  (void)setpriority(PRIO_PROCESS, 0, kNice);
  // Frames come and go; their memory stays, or every one would be paid for in page faults. That
  // setting is of the first arena alone.
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_THRESHOLD, kKeptBytes);
  mallopt(M_TRIM_THRESHOLD, kKeptBytes);
  LH_RETURN_IF_ERROR(ProbePacketPort());
  LH_ASSIGN_OR_RETURN(const UniqueFd listener, ListenForRequests(socket_path));
  LH_ASSIGN_OR_RETURN(
      auto forwarders,
      Forwarders::Start(threads == 0 ? ForwarderThreads() : threads, kMostHeldBytes));
  Relay relay(std::move(forwarders));
  return ServeUntilSignal(listener.get(), &relay);
}

}  // namespace longhaul::relay
