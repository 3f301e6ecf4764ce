#include "tests/bench/transport/peer.h"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/clock.h"
#include "base/notification.h"
#include "transport/p2p/registry/registry.h"

namespace longhaul::bench {
namespace {

using transport::Lane;
using transport::Link;

constexpr absl::Duration kOpenLimit = absl::Seconds(10);
constexpr absl::Duration kCoolDown = absl::Milliseconds(300);
constexpr absl::Duration kPingInterval = absl::Milliseconds(50);
constexpr int kPings = 30;
constexpr size_t kHeaderBytes = 96;  // a tensor header's worth
constexpr int kFramesAhead = 512;
constexpr uint64_t kFramesATensor = 64;

double CpuSeconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t NowNs() {
  return Now().nanoseconds();
}

// Keeps frames under way, and answers or counts control frames. Lives as long as the program.
class Traffic : public transport::LinkHandler, public std::enable_shared_from_this<Traffic> {
 public:
  explicit Traffic(bool dials) : dials_(dials), payload_(transport::kMaxFramePayloadBytes) {
    for (size_t i = 0; i < payload_.size(); ++i) payload_[i] = static_cast<std::byte>(i * 131);
  }

  void Attach(std::shared_ptr<Link> link) {
    const std::lock_guard lock(mutex_);
    link_ = std::move(link);
  }

  void SendBulk() {
    for (int i = 0; i < kFramesAhead; ++i) SendOne();
  }
  void Stop() { stopped_ = true; }

  void Ping() {
    auto stamp = std::make_shared<int64_t>(NowNs());
    if (const auto l = link()) {
      l->Send(Lane::kControl, {.header = {}, .body = std::as_bytes(std::span(stamp.get(), 1))},
              [stamp](const Status&) {});
    }
  }

  void OnFrame(Lane lane, std::span<const std::byte> payload) override {
    if (lane != Lane::kControl || payload.size() != sizeof(int64_t)) return;
    if (!dials_) {
      auto copy = std::make_shared<std::vector<std::byte>>(payload.begin(), payload.end());
      if (const auto l = link()) {
        l->Send(Lane::kControl, {.header = {}, .body = *copy}, [copy](const Status&) {});
      }
      return;
    }
    int64_t sent = 0;
    std::memcpy(&sent, payload.data(), sizeof(sent));
    const std::lock_guard lock(mutex_);
    round_trips_ns_.push_back(NowNs() - sent);
  }
  void OnSuspect(absl::Duration silence) override {
    fmt::print(stderr, "suspect: {} ms of silence\n", absl::ToInt64Milliseconds(silence));
  }
  void OnClosed(const Status&) override {
    Stop();
    closed_.Notify();
  }
  bool WaitForClosed(absl::Duration limit) { return closed_.WaitFor(limit); }

  double MedianRoundTripMs() {
    const std::lock_guard lock(mutex_);
    if (round_trips_ns_.empty()) return 0;
    const auto middle = round_trips_ns_.begin() + round_trips_ns_.size() / 2;
    std::nth_element(round_trips_ns_.begin(), middle, round_trips_ns_.end());
    return static_cast<double>(*middle) * 1e-6;
  }

 private:
  std::shared_ptr<Link> link() {
    const std::lock_guard lock(mutex_);
    return link_;
  }
  void SendOne() {
    const auto l = link();
    if (stopped_ || !l) return;
    const std::span<const std::byte> bytes(payload_);
    l->Send(Lane::kBulk,
            {.header = bytes.first(kHeaderBytes),
             .body = bytes.subspan(kHeaderBytes),
             .continues = ++sent_ % kFramesATensor != 0},
            [self = shared_from_this()](const Status& status) {
              if (status.ok()) self->SendOne();
            });
  }

  const bool dials_;
  std::vector<std::byte> payload_;
  std::atomic<bool> stopped_{false};
  std::atomic<uint64_t> sent_{0};
  Notification closed_;
  std::mutex mutex_;  // both below
  std::shared_ptr<Link> link_;
  std::vector<int64_t> round_trips_ns_;
};

// Waits until the time is over or the link closed.
void Pass(Traffic& traffic, absl::Duration duration) {
  traffic.WaitForClosed(duration);
}

// The same; the end that dialled pings meanwhile.
void PassWithPings(Traffic& traffic, bool dials, absl::Duration duration) {
  if (!dials) return Pass(traffic, duration);
  const Deadline deadline = Deadline::After(duration);
  while (!deadline.Expired() &&
         !traffic.WaitForClosed(std::min(kPingInterval, deadline.Remaining()))) {
    traffic.Ping();
  }
}

StatusOr<std::shared_ptr<Link>> OpenLink(transport::Transport& transport,
                                         const PeerOptions& options,
                                         std::shared_ptr<Traffic> traffic) {
  const transport::LinkKey key{RunId("bench-000000"), Stamp(1), EdgeId(0)};
  StatusOr<std::shared_ptr<Link>> result = absl::InternalError("not open");
  Notification opened;
  const auto done = [&](StatusOr<std::shared_ptr<Link>> link) {
    result = std::move(link);
    opened.Notify();
  };
  const Deadline deadline = Deadline::After(kOpenLimit);
  const transport::LinkOptions link{.sealed = options.sealed};
  if (options.dial.empty()) {
    transport.Expect(key, "bench", std::move(traffic), link, deadline, done);
    fmt::print("address {}\n", transport.address());
    std::fflush(stdout);
  } else {
    transport.Dial({options.dial}, key, "bench", std::move(traffic), link, deadline, done);
  }
  opened.Wait();
  return result;
}

}  // namespace

Status RunPeer(const PeerOptions& options) {
  const bool dials = !options.dial.empty();
  const TransportKind kind = FindTransport(options.transport)->kind;
  const transport::TransportOptions listening{.bind_address = options.bind};
  auto created = transport::CreateTransport(kind, listening);
  // A veth pair that was just set up has its carrier a moment later.
  for (const Deadline deadline = Deadline::After(kOpenLimit);
       absl::IsUnavailable(created.status()) && !deadline.Expired();) {
    absl::SleepFor(absl::Milliseconds(20));
    created = transport::CreateTransport(kind, listening);
  }
  LH_ASSIGN_OR_RETURN(const auto transport, std::move(created));
  const auto traffic = std::make_shared<Traffic>(dials);
  LH_ASSIGN_OR_RETURN(const std::shared_ptr<Link> link, OpenLink(*transport, options, traffic));
  traffic->Attach(link);
  if (options.send) traffic->SendBulk();
  Pass(*traffic, absl::Seconds(options.warm_up_seconds));

  const transport::LinkStats before = link->stats();
  const double cpu_before = CpuSeconds();
  const MonoTime started = Now();
  Pass(*traffic, absl::Seconds(options.seconds));
  const double seconds = absl::ToDoubleSeconds(Now() - started);
  const double cpu = CpuSeconds() - cpu_before;
  const transport::LinkStats after = link->stats();
  // Apart from the above: pings wake both ends and would count as the link's own cost. The load
  // stays, also for the other end, whose measurement may have begun later.
  PassWithPings(*traffic, dials, kPings * kPingInterval);
  Pass(*traffic, kCoolDown);
  traffic->Stop();

  fmt::print("{}\n",
             nlohmann::json{
                 {"seconds", seconds},
                 {"cpu_seconds", cpu},
                 {"link", link->Describe()},
                 {"sent_bytes", after.payload_bytes_sent - before.payload_bytes_sent},
                 {"received_bytes", after.payload_bytes_received - before.payload_bytes_received},
                 {"control_round_trip_ms", traffic->MedianRoundTripMs()},
                 {"longest_silence_ms", absl::ToDoubleMilliseconds(after.longest_silence)}}
                 .dump());
  std::fflush(stdout);
  if (dials) link->Close(Deadline::After(absl::Seconds(1)));
  traffic->WaitForClosed(absl::Seconds(5));
  traffic->Attach(nullptr);
  return absl::OkStatus();
}

}  // namespace longhaul::bench
