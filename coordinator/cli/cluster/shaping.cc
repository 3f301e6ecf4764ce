#include "coordinator/cli/cluster/shaping.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.h"

namespace longhaul {
namespace {

constexpr uint64_t kMinRate = 64'000;
constexpr uint64_t kMaxRate = 100'000'000'000;

std::string Bits(uint64_t bits_per_second) {
  return fmt::format("{}bit", bits_per_second);
}

// HTB lets a class overdraw by the packet under way, so small bursts do; at 10 Gbit/s timers are
// too coarse for that.
uint64_t HtbBurstBytes(uint64_t rate) {
  return rate > 1'000'000'000 ? 1 << 20 : 15 * 1024;
}

// TBF's burst must exceed one GSO packet (about 69 kB), or the kernel segments in software.
uint64_t TbfBurstBytes(uint64_t rate) {
  if (rate <= 300'000'000) return 72 * 1024;
  return rate <= 1'000'000'000 ? 128 * 1024 : 1 << 20;
}

// A part of a second of the line and a burst, which is always room for one GSO packet.
uint64_t QueueBytes(uint64_t rate, double seconds) {
  const auto line = static_cast<uint64_t>(static_cast<double>(rate) / 8 * seconds);
  return std::min<uint64_t>(line + TbfBurstBytes(rate), 8 << 20);
}

// HTB: both neighbours of a stage send to it at once, up to half a megabyte on its way. A queue of
// 50 ms then drops whole GSO packets, which was up to 10% of retransmissions and stalls of seconds
// at 10 Mbit/s; small packets pass a deep queue. TBF has no such lane, so heartbeats wait in its
// queue.
constexpr double kHtbQueueSeconds = 0.5;
constexpr double kTbfQueueSeconds = 0.05;

// Slow links get smaller GSO packets (10 ms of the line): one of 64 KB is 50 ms of 10 Mbit/s,
// during which nothing else of the connection moves. But each costs an acknowledgement, so not too
// small: 6 KB took 1% of the line, 16 KB take 0.4%.
uint64_t GsoBytes(uint64_t rate) {
  if (rate == 0) return 65536;
  return std::clamp<uint64_t>(rate / 8 / 100, 16384, 65536);
}

Command Tc(const Interface& interface, const char* object, const char* action,
           const Command& rest) {
  Command command = {"tc", "-n", interface.network, object, action, "dev", interface.device};
  command.insert(command.end(), rest.begin(), rest.end());
  return command;
}

void AddHtbClasses(const Interface& interface, const char* action, uint64_t rate,
                   std::vector<Command>* commands) {
  const std::string burst = std::to_string(HtbBurstBytes(rate));
  const auto add = [&](const char* parent, const char* id, uint64_t own, const char* priority) {
    commands->push_back(
        Tc(interface, "class", action,
           {"parent", parent, "classid", id, "htb", "rate", Bits(own), "ceil", Bits(rate), "burst",
            burst, "cburst", burst, "quantum", "70000", "prio", priority}));
  };
  add("1:", "1:1", rate, "0");
  add("1:1", "1:10", rate / 2, "0");
  add("1:1", "1:20", rate / 2, "1");
}

void AddHtbQueues(const Interface& interface, const char* action, uint64_t rate,
                  std::vector<Command>* commands) {
  const std::string limit = std::to_string(QueueBytes(rate, kHtbQueueSeconds));
  for (const char* minor : {"10", "20"}) {
    commands->push_back(Tc(interface, "qdisc", action,
                           {"parent", fmt::format("1:{}", minor), "handle",
                            fmt::format("{}:", minor), "bfifo", "limit", limit}));
  }
}

void AddHtb(const Interface& interface, uint64_t rate, std::vector<Command>* commands) {
  commands->push_back(
      Tc(interface, "qdisc", "add", {"root", "handle", "1:", "htb", "default", "20"}));
  AddHtbClasses(interface, "add", rate, commands);
  AddHtbQueues(interface, "add", rate, commands);
  // The IPv4 header's total length, at offset 2, with a high byte of zero.
  commands->push_back(Tc(interface, "filter", "add",
                         {"parent", "1:", "protocol", "ip", "prio", "1", "u32", "match", "u16",
                          "0x0000", "0xff00", "at", "2", "flowid", "1:10"}));
  commands->push_back(Tc(interface, "filter", "add",
                         {"parent", "1:", "protocol", "arp", "prio", "2", "u32", "match", "u32",
                          "0", "0", "flowid", "1:10"}));
}

Command TbfCommand(const Interface& interface, uint64_t rate) {
  return Tc(interface, "qdisc", "replace",
            {"root", "handle", "1:", "tbf", "rate", Bits(rate), "burst",
             std::to_string(TbfBurstBytes(rate)), "limit",
             std::to_string(QueueBytes(rate, kTbfQueueSeconds))});
}

Status RunAll(const std::vector<Command>& commands) {
  for (const Command& command : commands) LH_RETURN_IF_ERROR(RunTool(command).status());
  return absl::OkStatus();
}

}  // namespace

std::string_view ToString(Shaper shaper) {
  return shaper == Shaper::kHtb ? "htb" : "tbf";
}

StatusOr<Shaper> ParseShaper(std::string_view text) {
  if (text == "htb") return Shaper::kHtb;
  if (text == "tbf") return Shaper::kTbf;
  return absl::InvalidArgumentError(fmt::format("expected shaper htb or tbf, found '{}'", text));
}

StatusOr<uint64_t> ParseLinkRate(std::string_view text) {
  if (text == "unlimited") return 0;
  StatusOr<uint64_t> rate = ParseBitsPerSecond(text);
  if (!rate.ok()) {
    return absl::InvalidArgumentError(fmt::format(
        "rate '{}': expected \"unlimited\", or a rate; {}", text, Message(rate.status())));
  }
  if (*rate < kMinRate || *rate > kMaxRate) {
    return absl::InvalidArgumentError(
        fmt::format("rate '{}': expected 64kbit to 100gbit, or \"unlimited\"", text));
  }
  return rate;
}

std::string FormatLinkRate(uint64_t bits_per_second) {
  if (bits_per_second == 0) return "unlimited";
  return FormatBitsPerSecond(static_cast<double>(bits_per_second));
}

std::vector<Command> ShapeCommands(const Interface& interface, Shaper shaper, uint64_t from,
                                   uint64_t to) {
  std::vector<Command> commands;
  if (from == to) return commands;
  commands.push_back({"ip", "-n", interface.network, "link", "set", "dev", interface.device,
                      "gso_max_size", std::to_string(GsoBytes(to))});
  if (to == 0) {
    commands.push_back(Tc(interface, "qdisc", "del", {"root"}));
  } else if (shaper == Shaper::kTbf) {
    commands.push_back(TbfCommand(interface, to));
  } else if (from == 0) {
    AddHtb(interface, to, &commands);
  } else {
    AddHtbClasses(interface, "change", to, &commands);
    AddHtbQueues(interface, "change", to, &commands);
  }
  return commands;
}

StatusOr<std::optional<LinkCounters>> ParseCounters(std::string_view text, Shaper shaper) {
  try {
    std::optional<LinkCounters> counters;
    std::optional<uint64_t> data_bytes, acknowledgement_bytes;
    for (const auto& qdisc : nlohmann::json::parse(text)) {
      if (!qdisc.contains("handle")) continue;
      const std::string handle = qdisc.at("handle");
      const uint64_t bytes = qdisc.at("bytes");
      if (handle == "1:" && qdisc.at("kind") == ToString(shaper)) {
        counters.emplace();
        counters->bytes = bytes;
        counters->packets = qdisc.at("packets");
        counters->dropped_packets = qdisc.at("drops");
        counters->backlog_bytes = qdisc.at("backlog");
      } else if (handle == "10:") {
        acknowledgement_bytes = bytes;
      } else if (handle == "20:") {
        data_bytes = bytes;
      }
    }
    if (counters && shaper == Shaper::kHtb) {
      counters->data_bytes = data_bytes;
      counters->acknowledgement_bytes = acknowledgement_bytes;
    }
    return counters;
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(
        fmt::format("cannot read the output of tc: {}", std::string_view(error.what())));
  }
}

StatusOr<Shaper> ProbeShaper(const std::string& network) {
  const Interface loopback{network, "lo"};
  const Command clear = Tc(loopback, "qdisc", "del", {"root"});
  std::vector<Command> htb, tbf;
  AddHtb(loopback, 1'000'000, &htb);
  const Status with_htb = RunAll(htb);
  (void)RunTool(clear);  // Nothing to delete if the first command failed.
  if (with_htb.ok()) return Shaper::kHtb;
  const Status with_tbf = RunTool(TbfCommand(loopback, 1'000'000)).status();
  if (with_tbf.ok()) {
    (void)RunTool(clear);
    return Shaper::kTbf;
  }
  return absl::FailedPreconditionError(fmt::format(
      "this kernel cannot shape links: it has neither the htb qdisc with u32 classifiers nor the "
      "tbf qdisc. Load the modules (modprobe sch_htb cls_u32, or modprobe sch_tbf), or use --rate "
      "unlimited. First: {}. Then: {}",
      Message(with_htb), Message(with_tbf)));
}

Status Shape(const Interface& interface, Shaper shaper, uint64_t from, uint64_t to) {
  return RunAll(ShapeCommands(interface, shaper, from, to));
}

StatusOr<std::optional<LinkCounters>> ReadCounters(const Interface& interface, Shaper shaper) {
  LH_ASSIGN_OR_RETURN(const std::string text, RunTool({"tc", "-n", interface.network, "-s", "-j",
                                                       "qdisc", "show", "dev", interface.device}));
  return ParseCounters(text, shaper);
}

}  // namespace longhaul
