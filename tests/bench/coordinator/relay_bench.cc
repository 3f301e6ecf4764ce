// longhaul-relay-bench: what the relay of local clusters carries, and what it takes for that.
//
// Pairs of workers in the networks of a local cluster send to each other, both ways, as fast as
// their links allow. The senders copy nothing (sendfile) and the receivers throw everything away,
// so that the machine's cores are the relay's and the kernel's.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <limits.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/shutdown.h"
#include "base/unique_fd.h"
#include "base/units.h"
#include "deploy/cluster/daemons.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/process.h"
#include "deploy/cluster/relay/control.h"
#include "deploy/cluster/relay/packet_port.h"
#include "deploy/cluster/relay/relay.h"
#include "deploy/cluster/requirements.h"
#include "run/file/link_quality.h"

namespace longhaul::bench {
namespace {

// What automake and ctest call a test that could not be run.
constexpr int kSkipped = 77;
constexpr uint16_t kPort = 5001;
constexpr size_t kSendBytes = 1 << 20;
constexpr size_t kReceiveBytes = 1 << 18;

struct Options {
  uint32_t pairs = 7;
  std::string rate = "1gbit";
  std::string delay = "25ms";
  std::vector<uint32_t> threads = {1, 2, 4};
  double seconds = 5;
};

std::string Self() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return {path, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

// Takes the networks of a cluster down, whatever there is of them.
class Cluster {
 public:
  explicit Cluster(uint32_t workers)
      : name_(fmt::format("rb{}", getpid())),
        socket_(fmt::format("/tmp/lh-{}.sock", name_)),
        workers_(workers) {}
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;
  ~Cluster() {
    StopRelay();
    DestroyNetwork(name_).IgnoreError();
    unlink(socket_.c_str());
  }

  Status SetUp(uint64_t bits_per_second);
  // One with `threads` threads, instead of the one that may be there.
  Status StartRelay(uint32_t threads, absl::Duration delay);
  StatusOr<relay::RelayReport> Ask() const {
    return relay::AskRelay(socket_, nullptr, Deadline::After(absl::Seconds(5)));
  }
  std::string network(uint32_t worker) const { return WorkerNetwork(name_, worker); }
  std::string address(uint32_t worker) const { return DataAddress(subnet_, worker); }

 private:
  void StopRelay() {
    if (relay_.pid != 0) KillProcess(relay_).IgnoreError();
    relay_ = {};
  }

  const std::string name_, socket_;
  const uint32_t workers_;
  uint32_t subnet_ = 0;
  ProcessIdentity relay_;
};

Status Cluster::SetUp(uint64_t bits_per_second) {
  LH_ASSIGN_OR_RETURN(subnet_, CreateBridges(name_));
  LH_ASSIGN_OR_RETURN(const Shaper shaper, ProbeShaper(BridgeNetwork(name_)));
  const LineShape line{.bits_per_second = bits_per_second};
  for (uint32_t worker = 1; worker <= workers_; ++worker) {
    LH_RETURN_IF_ERROR(CreateWorkerNetwork(name_, subnet_, worker));
    LH_RETURN_IF_ERROR(SetOnBridge(name_, worker, false));
    LH_RETURN_IF_ERROR(Shape(Uplink(name_, worker), shaper, {}, line));
    LH_RETURN_IF_ERROR(Shape(Downlink(name_, worker), shaper, {}, line));
  }
  return absl::OkStatus();
}

Status Cluster::StartRelay(uint32_t threads, absl::Duration delay) {
  StopRelay();
  LH_ASSIGN_OR_RETURN(relay_, StartDaemon(InNetwork(BridgeNetwork(name_),
                                                    {Self(), "--relay", socket_, "--relay-threads",
                                                     std::to_string(threads)}),
                                          name_, "/dev/stderr"));
  relay::RelayConfig config;
  config.paths.assign(size_t{workers_} * workers_, {.delay = delay, .jitter = {}, .loss = 0});
  for (uint32_t worker = 1; worker <= workers_; ++worker) {
    config.ports.push_back({Downlink(name_, worker).device, true});
  }
  return relay::AskStartedRelay(socket_, &config, Deadline::After(absl::Seconds(10))).status();
}

// A socket in the network namespace of a worker.
UniqueFd SocketIn(const std::string& network) {
  UniqueFd socket;
  std::thread([&] {
    const UniqueFd fd(open(("/run/netns/" + network).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || setns(fd.get(), CLONE_NEWNET) != 0) return;
    socket = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  }).join();
  return socket;
}

// Bytes from one worker to another, for as long as the object lives.
class Stream {
 public:
  // Sends `payload`'s kSendBytes again and again.
  static StatusOr<std::unique_ptr<Stream>> Start(const Cluster& cluster, int payload, uint32_t from,
                                                 uint32_t to) {
    std::unique_ptr<Stream> stream(
        new Stream(SocketIn(cluster.network(to)), SocketIn(cluster.network(from))));
    sockaddr_in address{
        .sin_family = AF_INET, .sin_port = htons(kPort), .sin_addr = {}, .sin_zero = {}};
    inet_pton(AF_INET, cluster.address(to).c_str(), &address.sin_addr);
    const auto* const raw = reinterpret_cast<const sockaddr*>(&address);
    const int listener = stream->listener_.get();
    const int on = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, raw, sizeof address) != 0 || listen(listener, 1) != 0 ||
        connect(stream->sender_.get(), raw, sizeof address) != 0) {
      return FromErrno(fmt::format("worker{} cannot reach worker{}", from, to), errno);
    }
    stream->receiving_ = std::thread([raw = stream.get()] { raw->Receive(); });
    stream->sending_ = std::thread([raw = stream.get(), payload] {
      off_t offset = 0;
      while (sendfile(raw->sender_.get(), payload, &offset, kSendBytes) > 0) offset = 0;
    });
    return stream;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    shutdown(listener_.get(), SHUT_RDWR);
    shutdown(sender_.get(), SHUT_RDWR);
    if (sending_.joinable()) sending_.join();
    if (receiving_.joinable()) receiving_.join();
  }
  uint64_t received() const { return received_; }

 private:
  Stream(UniqueFd listener, UniqueFd sender)
      : listener_(std::move(listener)), sender_(std::move(sender)) {}
  // Until the sender shuts its side down.
  void Receive() {
    const UniqueFd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::vector<char> untouched(kReceiveBytes);  // TCP throws the bytes away
    while (true) {
      const ssize_t got = recv(socket.get(), untouched.data(), untouched.size(), MSG_TRUNC);
      if (got <= 0) return;
      received_ += static_cast<uint64_t>(got);
    }
  }

  const UniqueFd listener_, sender_;
  std::atomic<uint64_t> received_ = 0;
  std::thread receiving_, sending_;
};

uint64_t ReceivedBytes(const std::vector<std::unique_ptr<Stream>>& streams) {
  uint64_t bytes = 0;
  for (const auto& stream : streams) bytes += stream->received();
  return bytes;
}

Status Wait(absl::Duration time) {
  if (WaitForShutdownSignal(time) == 0) return absl::OkStatus();
  return absl::CancelledError("interrupted");
}

Status Measure(const Cluster& cluster, const Options& options, uint64_t rate,
               absl::Duration delay) {
  const UniqueFd payload(memfd_create("payload", MFD_CLOEXEC));
  if (!payload || ftruncate(payload.get(), kSendBytes) != 0) return FromErrno("memfd", errno);
  std::vector<std::unique_ptr<Stream>> streams;
  for (uint32_t worker = 1; worker <= 2 * options.pairs; worker += 2) {
    for (const uint32_t from : {worker, worker + 1}) {
      LH_ASSIGN_OR_RETURN(auto stream, Stream::Start(cluster, payload.get(), from,
                                                     from == worker ? worker + 1 : worker));
      streams.push_back(std::move(stream));
    }
  }
  // The round trips in which TCP finds out what a long line holds.
  LH_RETURN_IF_ERROR(Wait(absl::Seconds(1) + 80 * delay));
  const MonoTime start = Now();
  const uint64_t bytes_before = ReceivedBytes(streams);
  LH_ASSIGN_OR_RETURN(const relay::RelayReport before, cluster.Ask());
  LH_RETURN_IF_ERROR(Wait(absl::Seconds(options.seconds)));
  LH_ASSIGN_OR_RETURN(const relay::RelayReport after, cluster.Ask());
  const double bits = 8 * static_cast<double>(ReceivedBytes(streams) - bytes_before);
  const double seconds = absl::ToDoubleSeconds(Now() - start);
  if (bits == 0) return absl::InternalError("no bytes arrived");
  const double cores = absl::ToDoubleSeconds(after.cpu_time - before.cpu_time) / seconds;
  const double goodput = bits / seconds;
  const auto packets = static_cast<double>(after.arrived_packets - before.arrived_packets);
  const uint64_t dropped = after.overflowed_packets - before.overflowed_packets +
                           after.missed_packets - before.missed_packets + after.refused_packets -
                           before.refused_packets + after.failed_packets - before.failed_packets;
  fmt::print(
      "{:>5}  {:>12}  {:>6}  {:>7}  {:>14}  {:>5.1f} %  {:>6.1f} KB  {:>6.1f} %  {:>8.2f} %  "
      "{:>7}\n",
      streams.size(), FormatBitsPerSecond(static_cast<double>(rate)),
      longhaul::FormatDuration(delay), after.threads, FormatBitsPerSecond(goodput),
      100 * goodput / (static_cast<double>(rate) * static_cast<double>(streams.size())),
      bits / 8 / packets / 1000, 100 * cores, 100 * cores / (goodput / 1e9), dropped);
  std::fflush(stdout);
  return absl::OkStatus();
}

Status Run(const Options& options) {
  LH_ASSIGN_OR_RETURN(const uint64_t rate, ParseBitsPerSecond(options.rate));
  LH_ASSIGN_OR_RETURN(const absl::Duration delay, ParseLinkDelay(options.delay));
  Cluster cluster(2 * options.pairs);
  LH_RETURN_IF_ERROR(cluster.SetUp(rate));
  fmt::print("{:>5}  {:>12}  {:>6}  {:>7}  {:>14}  {:>7}  {:>9}  {:>8}  {:>10}  {:>7}\n", "links",
             "rate", "delay", "threads", "goodput", "of rate", "a packet", "of cores", "per Gbit/s",
             "dropped");
  for (const uint32_t threads : options.threads) {
    LH_RETURN_IF_ERROR(cluster.StartRelay(threads, delay));
    LH_RETURN_IF_ERROR(Measure(cluster, options, rate, delay));
  }
  return absl::OkStatus();
}

// What this process must be let do; the only reason not to measure.
Status CheckRights() {
  LH_RETURN_IF_ERROR(CheckRequirements(ThisMachine()));
  return relay::ProbePacketPort();
}

int Main(int argc, char** argv) {
  Options options;
  std::string relay_socket;
  uint32_t relay_threads = 0;
  CLI::App app(
      "Measures the relay of local clusters: pairs of workers send to each other, both ways, over "
      "links with a rate and a delay. Prints the goodput of all links together and the cores that "
      "the relay takes. Needs root.");
  app.add_option("--pairs", options.pairs, "Pairs of workers")
      ->capture_default_str()
      ->check(CLI::Range(1u, kMaxClusterWorkers / 2));
  app.add_option("--rate", options.rate, "Of each worker, each way")->capture_default_str();
  app.add_option("--delay", options.delay, "One way")->capture_default_str();
  app.add_option("--threads", options.threads,
                 "Of the relay, with commas between; 0: as many as a local cluster's has")
      ->capture_default_str()
      ->delimiter(',')
      ->check(CLI::Range(0u, 64u));
  app.add_option("--seconds", options.seconds, "Length of each measurement")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 600.0));
  const std::string own = "";  // options of the process that this one starts: not in the help
  app.add_option("--relay", relay_socket)->group(own);
  app.add_option("--relay-threads", relay_threads)->group(own);
  CLI11_PARSE(app, argc, argv);
  if (!relay_socket.empty()) return relay::RunRelay(relay_socket, relay_threads).ok() ? 0 : 1;
  BlockShutdownSignals();
  if (const Status rights = CheckRights(); !rights.ok()) {
    const bool required = std::getenv("LONGHAUL_REQUIRE_ROOT") != nullptr;
    fmt::print(stderr, "{} {}\n",
               required ? "LONGHAUL_REQUIRE_ROOT is set, but" : "skipped:", Message(rights));
    return required ? 1 : kSkipped;
  }
  const Status status = Run(options);
  if (status.ok()) return 0;
  fmt::print(stderr, "longhaul-relay-bench: {}\n", Message(status));
  return 1;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  return longhaul::bench::Main(argc, argv);
}
