// longhaul-transport-bench: what a data link makes of a line of given rate.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <climits>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/shutdown.h"
#include "base/units.h"
#include "deploy/cluster/relay/relay.h"
#include "run/file/link_quality.h"
#include "run/kinds/transports.h"
#include "tests/bench/transport/namespaces.h"
#include "tests/bench/transport/peer.h"

namespace longhaul::bench {
namespace {

// What automake and ctest call a test that could not be run.
constexpr int kSkipped = 77;
constexpr int kInterrupted = 130;

struct Options {
  std::string transports = "ucx,tcp,grpc";
  std::string links = "plain,sealed";
  std::string rates = "100mbit,500mbit,1gbit";
  std::string delays = "0ms";
  std::string losses = "0%";
  std::string traffic = "one,both";
  double seconds = 5;
  bool json = false;
};

// Goodput in percent of the rate, each way; the direction that sends nothing has 0.
struct Result {
  std::string transport;
  bool sealed = false;
  uint64_t rate = 0;
  LinkQuality path;
  bool both = false;
  double there_percent = 0, back_percent = 0;
  double cpu_seconds_per_gb = 0;  // of both processes, per GB that one sent to the other
  double control_round_trip_ms = 0;
  double longest_silence_ms = 0;
};

std::string Self() {
  char path[PATH_MAX];
  const ssize_t n = readlink("/proc/self/exe", path, sizeof(path));
  return {path, static_cast<size_t>(std::max<ssize_t>(n, 0))};
}

StatusOr<std::unique_ptr<Process>> StartPeer(const Namespaces& namespaces, int end,
                                             const PeerOptions& options) {
  std::vector<std::string> command = {"ip",           "netns",
                                      "exec",         namespaces.name(end),
                                      Self(),         "--peer",
                                      "--bind",       Namespaces::Ip(end) + ":0",
                                      "--transports", options.transport,
                                      "--links",      options.sealed ? "sealed" : "plain",
                                      "--seconds",    fmt::format("{}", options.seconds),
                                      "--warm-up",    fmt::format("{}", options.warm_up_seconds)};
  if (!options.dial.empty()) command.insert(command.end(), {"--dial", options.dial});
  if (options.send) command.push_back("--send");
  return Process::Start(command);
}

std::vector<std::string> Parts(const std::string& list) {
  std::istringstream in(list);
  std::vector<std::string> parts;
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

double CpuPerGb(const nlohmann::json& one, const nlohmann::json& other) {
  const double gb =
      (one["received_bytes"].get<double>() + other["received_bytes"].get<double>()) / 1e9;
  const double seconds = one["cpu_seconds"].get<double>() + other["cpu_seconds"].get<double>();
  return gb > 0 ? seconds / gb : 0;
}

double Percent(const nlohmann::json& receiver, uint64_t rate) {
  return 100 * 8 * receiver["received_bytes"].get<double>() / receiver["seconds"].get<double>() /
         static_cast<double>(rate);
}

// A moment, and the round trips in which TCP finds out what a long line holds.
double WarmUpSeconds(absl::Duration delay) {
  return 0.3 + 40 * absl::ToDoubleSeconds(2 * delay);
}

// What a peer says of itself: that it is what it was asked to be.
Status CheckLink(const nlohmann::json& peer, const std::string& transport, bool sealed) {
  const auto link = peer["link"].get<std::string>();
  if (link.starts_with(transport + " ") && link.ends_with(", sealed") == sealed) {
    return absl::OkStatus();
  }
  return Internal("expected a {} link over {}, got '{}'", sealed ? "sealed" : "plain", transport,
                  link);
}

StatusOr<Result> Measure(Namespaces& namespaces, const std::string& transport, bool sealed,
                         uint64_t rate, const LinkQuality& path, bool both, double seconds) {
  const double warm_up = WarmUpSeconds(path.delay);
  LH_RETURN_IF_ERROR(namespaces.Shape(rate));
  LH_ASSIGN_OR_RETURN(const auto listener, StartPeer(namespaces, 1,
                                                     {.transport = transport,
                                                      .sealed = sealed,
                                                      .send = both,
                                                      .seconds = seconds,
                                                      .warm_up_seconds = warm_up}));
  LH_ASSIGN_OR_RETURN(const std::string line, listener->ReadLine(10));
  const std::string prefix = "address ";
  if (!line.starts_with(prefix)) return absl::InternalError("the peer process said: " + line);
  LH_ASSIGN_OR_RETURN(const auto dialler, StartPeer(namespaces, 0,
                                                    {.transport = transport,
                                                     .sealed = sealed,
                                                     .dial = line.substr(prefix.size()),
                                                     .send = true,
                                                     .seconds = seconds,
                                                     .warm_up_seconds = warm_up}));
  LH_ASSIGN_OR_RETURN(const std::string there, listener->ReadLine(warm_up + seconds + 20));
  LH_ASSIGN_OR_RETURN(const std::string here, dialler->ReadLine(warm_up + seconds + 20));
  const auto at_listener = nlohmann::json::parse(there);
  const auto at_dialler = nlohmann::json::parse(here);
  LH_RETURN_IF_ERROR(CheckLink(at_listener, transport, sealed));
  LH_RETURN_IF_ERROR(CheckLink(at_dialler, transport, sealed));
  return Result{.transport = transport,
                .sealed = sealed,
                .rate = rate,
                .path = path,
                .both = both,
                .there_percent = Percent(at_listener, rate),
                .back_percent = Percent(at_dialler, rate),
                .cpu_seconds_per_gb = CpuPerGb(at_listener, at_dialler),
                .control_round_trip_ms = at_dialler["control_round_trip_ms"].get<double>(),
                .longest_silence_ms = std::max(at_listener["longest_silence_ms"].get<double>(),
                                               at_dialler["longest_silence_ms"].get<double>())};
}

void Print(const Result& r) {
  fmt::print(
      "{:<9}  {:<6}  {:>12}  {:>6}  {:>6}  {:<8}  {:>6.1f} %  {:>8}  {:>8.2f}  {:>10.2f} ms  "
      "{:>8.0f} "
      "ms\n",
      r.transport, r.sealed ? "sealed" : "plain", FormatBitsPerSecond(static_cast<double>(r.rate)),
      longhaul::FormatDuration(r.path.delay), fmt::format("{:g} %", 100 * r.path.loss),
      r.both ? "both" : "one way", r.there_percent,
      r.both ? fmt::format("{:.1f} %", r.back_percent) : "-", r.cpu_seconds_per_gb,
      r.control_round_trip_ms, r.longest_silence_ms);
  std::fflush(stdout);
}

nlohmann::json ToJson(const Result& r) {
  return {{"transport", r.transport},
          {"sealed", r.sealed},
          {"rate_bits_per_second", r.rate},
          {"delay_seconds", absl::ToDoubleSeconds(r.path.delay)},
          {"loss", r.path.loss},
          {"both_ways", r.both},
          {"goodput_percent", r.there_percent},
          {"goodput_back_percent", r.back_percent},
          {"cpu_seconds_per_gb", r.cpu_seconds_per_gb},
          {"control_round_trip_p50_ms", r.control_round_trip_ms},
          {"longest_silence_ms", r.longest_silence_ms}};
}

Status MeasurePath(Namespaces& namespaces, const Options& options, const LinkQuality& path,
                   nlohmann::json* all) {
  for (const std::string& text : Parts(options.rates)) {
    LH_ASSIGN_OR_RETURN(const uint64_t rate, ParseBitsPerSecond(text));
    for (const std::string& traffic : Parts(options.traffic)) {
      const bool both = traffic == "both";
      for (const std::string& transport : Parts(options.transports)) {
        for (const std::string& links : Parts(options.links)) {
          LH_ASSIGN_OR_RETURN(const Result result, Measure(namespaces, transport, links == "sealed",
                                                           rate, path, both, options.seconds));
          if (result.there_percent <= 0 || (both && result.back_percent <= 0)) {
            return absl::InternalError("no bytes arrived");
          }
          options.json ? all->push_back(ToJson(result)) : Print(result);
        }
      }
    }
  }
  return absl::OkStatus();
}

// `possible`: whether the machine has what this needs.
Status MeasureAll(const Options& options, bool* possible) {
  nlohmann::json all = nlohmann::json::array();
  if (!options.json) {
    fmt::print("{:<9}  {:<6}  {:>12}  {:>6}  {:>6}  {:<8}  {:>8}  {:>8}  {:>8}  {:>13}  {:>11}\n",
               "transport", "links", "rate", "delay", "loss", "traffic", "there", "back",
               "CPU s/GB", "control p50", "silence");
  }
  for (const std::string& text : Parts(options.delays)) {
    LH_ASSIGN_OR_RETURN(const absl::Duration delay, ParseLinkDelay(text));
    for (const std::string& share : Parts(options.losses)) {
      LH_ASSIGN_OR_RETURN(const double loss, ParseLoss(share));
      const LinkQuality path{.delay = delay, .jitter = {}, .loss = loss};
      const auto namespaces = Namespaces::Create(path, Self());
      *possible = namespaces.ok();
      LH_RETURN_IF_ERROR(namespaces.status());
      LH_RETURN_IF_ERROR(MeasurePath(**namespaces, options, path, &all));
    }
  }
  if (options.json) fmt::print("{}\n", all.dump(2));
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Options options;
  PeerOptions peer;
  bool is_peer = false;
  std::string relay_socket;
  CLI::App app(
      "Measures a data link (with checks, credits and heartbeats) between two "
      "network namespaces joined by a shaped line. Goodput is in percent of the rate; a "
      "line of 1,500-byte packets gives 95.6 % at best.");
  app.add_option("--transports", options.transports, "Of ucx, tcp and grpc, with commas between")
      ->capture_default_str()
      ->check([](const std::string& list) {
        for (const std::string& one : Parts(list)) {
          const TransportTraits* const row = FindTransport(one);
          if (row == nullptr || !row->listens)
            return "expected ucx, tcp or grpc, got '" + one + "'";
        }
        return std::string();
      });
  app.add_option("--links", options.links, "Of plain and sealed (encrypted), with commas between")
      ->capture_default_str()
      ->check([](const std::string& list) {
        for (const std::string& one : Parts(list)) {
          if (one != "plain" && one != "sealed")
            return "expected plain or sealed, got '" + one + "'";
        }
        return std::string();
      });
  app.add_option("--rates", options.rates, "Rates, with commas between")->capture_default_str();
  app.add_option(
         "--delays", options.delays,
         "One-way delays, with commas between; packets then go through the relay that local "
         "clusters have")
      ->capture_default_str();
  app.add_option("--loss", options.losses,
                 "Shares of packets that are lost each way, like 0.1%, with commas between")
      ->capture_default_str();
  app.add_option("--traffic", options.traffic, "Of one (way) and both (ways), with commas between")
      ->capture_default_str()
      ->check([](const std::string& list) {
        for (const std::string& one : Parts(list)) {
          if (one != "one" && one != "both") return "expected one or both, got '" + one + "'";
        }
        return std::string();
      });
  app.add_option("--seconds", options.seconds, "Length of each measurement")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 600.0));
  app.add_flag("--json", options.json, "Print JSON");
  const std::string own = "";  // options of the processes that this one starts: not in the help
  app.add_flag("--peer", is_peer)->group(own);
  app.add_option("--bind", peer.bind)->group(own);
  app.add_option("--dial", peer.dial)->group(own);
  app.add_option("--warm-up", peer.warm_up_seconds)->group(own);
  app.add_option("--relay", relay_socket)->group(own);
  app.add_flag("--send", peer.send)->group(own);
  CLI11_PARSE(app, argc, argv);
  if (!relay_socket.empty()) return relay::RunRelay(relay_socket).ok() ? 0 : 1;
  if (is_peer) {
    peer.transport = options.transports;
    peer.sealed = options.links == "sealed";
    peer.seconds = options.seconds;
    const Status status = RunPeer(peer);
    if (!status.ok()) fmt::print(stderr, "{}\n", Message(status));
    return status.ok() ? 0 : 1;
  }
  BlockShutdownSignals();
  bool possible = true;
  const Status status = MeasureAll(options, &possible);
  if (!possible) {
    fmt::print(stderr, "skipped: {}\n", Message(status));
    return kSkipped;
  }
  if (status.ok()) return 0;
  fmt::print(stderr, "{}\n", Message(status));
  return absl::IsCancelled(status) ? kInterrupted : 1;
}

}  // namespace
}  // namespace longhaul::bench

int main(int argc, char** argv) {
  longhaul::InitLogging("info").IgnoreError();  // to standard error, beside the results
  return longhaul::bench::Main(argc, argv);
}
