#include "deploy/cluster/shaping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <span>

#include "base/unique_fd.h"

namespace longhaul {
namespace {

// Rate of a line that has no limit itself, but whose paths have one or netem.
constexpr uint64_t kUnlimited = 100'000'000'000;
constexpr uint64_t kLeastRate = 8000;

// Minor numbers of classes, and major numbers of their leaves (shaping.h).
constexpr unsigned kSmall = 0x10, kData = 0x20;
constexpr unsigned kPath = 0x1000, kPathSmall = 0x2000, kPathData = 0x3000;
// Priority of the u32 filters of paths, which must match before all others.
constexpr const char* kPathSmallPriority = "1";
constexpr const char* kPathDataPriority = "2";
constexpr const char* kSmallPriority = "3";
constexpr const char* kArpPriority = "4";

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
constexpr uint64_t kPacketBytes = 1514;
constexpr const char* kMostSegments = "65535";

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

std::string Minor(unsigned minor) {
  return fmt::format("1:{:x}", minor);
}

// netem counts its queue in packets, and those under way are in it.
Command Leaf(const LineShape& line, const LinkQuality& quality, uint64_t rate) {
  const uint64_t bytes = QueueBytes(rate, kHtbQueueSeconds);
  if (!line.netem) return {"bfifo", "limit", std::to_string(bytes)};
  const double under_way =
      absl::ToDoubleSeconds(quality.delay + quality.jitter) * static_cast<double>(rate) / 8;
  const uint64_t packets = (bytes + static_cast<uint64_t>(under_way)) / kPacketBytes + 1000;
  Command leaf = {"netem",
                  "limit",
                  std::to_string(packets),
                  "delay",
                  fmt::format("{}us", absl::ToInt64Microseconds(quality.delay)),
                  fmt::format("{}us", absl::ToInt64Microseconds(quality.jitter)),
                  "loss",
                  fmt::format("{:.6f}%", quality.loss * 100)};
  // Any rate makes it keep the order of packets; without one, jitter mixes them up.
  if (quality.jitter != absl::ZeroDuration()) leaf.insert(leaf.end(), {"rate", Bits(kUnlimited)});
  return leaf;
}

// The tree of one line, made or changed. Classes lend each other what they do not use, but none may
// be promised what another one has: HTB would send both.
class HtbTree {
 public:
  HtbTree(const Interface& interface, const LineShape& line, std::vector<Command>* commands)
      : interface_(interface),
        line_(line),
        rate_(line.bits_per_second == 0 ? kUnlimited : line.bits_per_second),
        share_(std::max(rate_ / (line.paths.size() + 1), kLeastRate)),
        commands_(commands) {}

  void Root() { Run("qdisc", "add", {"root", "handle", "1:", "htb", "default", "20"}); }
  // Classes and leaves that are the line's own.
  void Line(const char* action) {
    Class(action, "1:", 1, rate_, rate_, "0");
    Pair(action, 1, kSmall, kData, share_, rate_, line_.quality);
  }
  void Path(const char* action, unsigned k) {
    const PathShape& path = line_.paths[k];
    const uint64_t ceiling =
        path.bits_per_second == 0 ? rate_ : std::min(rate_, path.bits_per_second);
    const uint64_t promised = std::min(share_, ceiling);
    Class(action, "1:1", kPath + k, promised, ceiling, "0");
    Pair(action, kPath + k, kPathSmall + k, kPathData + k, promised, ceiling, path.quality);
  }
  void PathFilters(unsigned k) {
    const Command address = {"match", "ip", "dst", line_.paths[k].to + "/32"};
    Filter("ip", kPathSmallPriority, address, /*small=*/true, kPathSmall + k);
    Filter("ip", kPathDataPriority, address, /*small=*/false, kPathData + k);
  }
  void LineFilters() {
    Filter("ip", kSmallPriority, {}, /*small=*/true, kSmall);
    Filter("arp", kArpPriority, {"match", "u32", "0", "0"}, /*small=*/false, kSmall);
  }

 private:
  void Run(const char* object, const char* action, const Command& rest) {
    commands_->push_back(Tc(interface_, object, action, rest));
  }
  void Class(const char* action, const std::string& parent, unsigned minor, uint64_t promised,
             uint64_t ceiling, const char* priority) {
    const std::string burst = std::to_string(HtbBurstBytes(ceiling));
    Run("class", action,
        {"parent", parent, "classid", Minor(minor), "htb", "rate", Bits(promised), "ceil",
         Bits(ceiling), "burst", burst, "cburst", burst, "quantum", "70000", "prio", priority});
  }
  void Pair(const char* action, unsigned parent, unsigned small, unsigned data, uint64_t promised,
            uint64_t ceiling, const LinkQuality& quality) {
    Class(action, Minor(parent), small, promised / 2, ceiling, "0");
    Class(action, Minor(parent), data, promised / 2, ceiling, "1");
    for (const unsigned minor : {small, data}) {
      Command leaf = {"parent", Minor(minor), "handle", fmt::format("{:x}:", minor)};
      const Command what = Leaf(line_, quality, ceiling);
      leaf.insert(leaf.end(), what.begin(), what.end());
      Run("qdisc", action, leaf);
    }
  }
  void Filter(const char* protocol, const char* priority, const Command& match, bool small,
              unsigned minor) {
    Command filter = {"parent", "1:", "protocol", protocol, "prio", priority, "u32"};
    filter.insert(filter.end(), match.begin(), match.end());
    // The IPv4 header's total length, at offset 2, with a high byte of zero.
    if (small) {
      for (const char* word : {"match", "u16", "0x0000", "0xff00", "at", "2"}) {
        filter.emplace_back(word);
      }
    }
    filter.insert(filter.end(), {"flowid", Minor(minor)});
    Run("filter", "add", filter);
  }

  const Interface& interface_;
  const LineShape& line_;
  const uint64_t rate_;
  const uint64_t share_;
  std::vector<Command>* const commands_;
};

void AddHtb(const Interface& interface, const LineShape& line, std::vector<Command>* commands) {
  HtbTree tree(interface, line, commands);
  tree.Root();
  tree.Line("add");
  tree.LineFilters();
  for (unsigned k = 0; k < line.paths.size(); ++k) {
    tree.Path("add", k);
    tree.PathFilters(k);
  }
}

void ChangeHtb(const Interface& interface, const LineShape& from, const LineShape& to,
               std::vector<Command>* commands) {
  HtbTree tree(interface, to, commands);
  tree.Line("change");
  for (unsigned k = 0; k < to.paths.size(); ++k) {
    const bool there = k < from.paths.size();
    tree.Path(there ? "change" : "add", k);
    if (!there) tree.PathFilters(k);
  }
}

Command TbfCommand(const Interface& interface, uint64_t rate) {
  return Tc(interface, "qdisc", "replace",
            {"root", "handle", "1:", "tbf", "rate", Bits(rate), "burst",
             std::to_string(TbfBurstBytes(rate)), "limit",
             std::to_string(QueueBytes(rate, kTbfQueueSeconds))});
}

enum class Band : uint8_t { kNone, kAcknowledgements, kPayload };

// Finds the band whose leaf has this handle ("10:", "2003:").
Band BandOf(const std::string& handle) {
  const unsigned long number = std::strtoul(handle.c_str(), nullptr, 16);
  const unsigned long group = number & ~0xfffUL;
  if (number == kSmall || group == kPathSmall) return Band::kAcknowledgements;
  if (number == kData || group == kPathData) return Band::kPayload;
  return Band::kNone;
}

bool IsTc(const Command& command) {
  return command.size() > 3 && command[0] == "tc" && command[1] == "-n";
}

// Commands of tc in one namespace, by one process: a topology of eight workers has 400 of them. One
// that fails ends it; tc says its number.
Status RunTcTogether(std::span<const Command> commands) {
  std::string text;
  for (const Command& command : commands) {
    // Words of ours alone, without spaces.
    text += fmt::format("{}\n", fmt::join(command.begin() + 3, command.end(), " "));
  }
  // Inherited by tc, which reads its own /proc/self.
  const UniqueFd fd(memfd_create("tc-commands", 0));
  if (!fd) return FromErrno("memfd_create", errno);
  Status status = absl::OkStatus();
  if (write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    status = FromErrno("cannot write tc's commands", errno);
  } else {
    status = RunTool({"tc", "-n", commands.front()[2], "-batch",
                      fmt::format("/proc/self/fd/{}", fd.get())})
                 .status();
  }
  if (status.ok()) return status;
  return Annotate(status, fmt::format("{} commands, of which the first is '{}'", commands.size(),
                                      ToString(commands.front())));
}

Status RunAll(const std::vector<Command>& commands) {
  std::span<const Command> rest(commands);
  while (!rest.empty()) {
    const auto same = [&](const Command& command) {
      return IsTc(command) && command[2] == rest.front()[2];
    };
    const size_t together =
        IsTc(rest.front())
            ? static_cast<size_t>(std::ranges::find_if_not(rest, same) - rest.begin())
            : 1;
    LH_RETURN_IF_ERROR(together > 1 ? RunTcTogether(rest.first(together))
                                    : RunTool(rest.front()).status());
    rest = rest.subspan(together);
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<Shaper> ParseShaper(std::string_view text) {
  if (text == "htb") return Shaper::kHtb;
  if (text == "tbf") return Shaper::kTbf;
  return InvalidArgument("expected shaper htb or tbf, found '{}'", text);
}

bool BeginsAnew(const LineShape& from, const LineShape& to) {
  if (!from.Shaped() || !to.Shaped()) return false;
  const bool extended =
      from.paths.size() <= to.paths.size() &&
      std::equal(from.paths.begin(), from.paths.end(), to.paths.begin(),
                 [](const PathShape& a, const PathShape& b) { return a.to == b.to; });
  return from.netem != to.netem || !extended;
}

std::vector<Command> ShapeCommands(const Interface& interface, Shaper shaper, const LineShape& from,
                                   const LineShape& to) {
  std::vector<Command> commands;
  if (from == to) return commands;
  Command size = {"ip",
                  "-n",
                  interface.network,
                  "link",
                  "set",
                  "dev",
                  interface.device,
                  "gso_max_size",
                  std::to_string(GsoBytes(to.bits_per_second))};
  if (from.single_packets != to.single_packets) {
    size.insert(size.end(), {"gso_max_segs", to.single_packets ? "1" : kMostSegments});
  }
  commands.push_back(size);
  const bool anew = BeginsAnew(from, to);
  if (from.Shaped() && (anew || !to.Shaped())) {
    commands.push_back(Tc(interface, "qdisc", "del", {"root"}));
  }
  if (!to.Shaped()) return commands;
  if (shaper == Shaper::kTbf) {
    commands.push_back(TbfCommand(interface, to.bits_per_second));
  } else if (anew || !from.Shaped()) {
    AddHtb(interface, to, &commands);
  } else {
    ChangeHtb(interface, from, to, &commands);
  }
  return commands;
}

StatusOr<std::optional<LinkCounters>> ParseCounters(std::string_view text, Shaper shaper) {
  try {
    std::optional<LinkCounters> counters;
    uint64_t data_bytes = 0, small_bytes = 0;
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
      } else if (const auto band = BandOf(handle); band == Band::kAcknowledgements) {
        small_bytes += bytes;
      } else if (band == Band::kPayload) {
        data_bytes += bytes;
      }
    }
    if (counters && shaper == Shaper::kHtb) {
      counters->data_bytes = data_bytes;
      counters->acknowledgement_bytes = small_bytes;
    }
    return counters;
  } catch (const nlohmann::json::exception& error) {
    return Internal("cannot read the output of tc: {}", std::string_view(error.what()));
  }
}

StatusOr<Shaper> ProbeShaper(const std::string& network) {
  const Interface loopback{network, "lo"};
  const Command clear = Tc(loopback, "qdisc", "del", {"root"});
  std::vector<Command> htb, tbf;
  AddHtb(loopback, {.bits_per_second = 1'000'000}, &htb);
  const Status with_htb = RunAll(htb);
  (void)RunTool(clear);  // Nothing to delete if the first command failed.
  if (with_htb.ok()) return Shaper::kHtb;
  const Status with_tbf = RunTool(TbfCommand(loopback, 1'000'000)).status();
  if (with_tbf.ok()) {
    (void)RunTool(clear);
    return Shaper::kTbf;
  }
  return FailedPrecondition(
      "this kernel cannot shape links: it has neither the htb qdisc with u32 classifiers nor the "
      "tbf qdisc. Load the modules (modprobe sch_htb cls_u32, or modprobe sch_tbf), or use --rate "
      "unlimited. First: {}. Then: {}",
      Message(with_htb), Message(with_tbf));
}

Status ProbeNetem(const std::string& network) {
  const Interface loopback{network, "lo"};
  Status status = RunTool(Tc(loopback, "qdisc", "add", {"root", "netem", "delay", "1ms"})).status();
  if (status.ok()) (void)RunTool(Tc(loopback, "qdisc", "del", {"root"}));
  return status;
}

Status Shape(const Interface& interface, Shaper shaper, const LineShape& from,
             const LineShape& to) {
  return RunAll(ShapeCommands(interface, shaper, from, to));
}

Status Reshape(const Interface& interface, Shaper shaper, const LineShape& to) {
  RunTool(Tc(interface, "qdisc", "del", {"root"})).IgnoreError();  // there may be none
  return Shape(interface, shaper, {}, to);
}

StatusOr<std::optional<LinkCounters>> ReadCounters(const Interface& interface, Shaper shaper) {
  LH_ASSIGN_OR_RETURN(const std::string text, RunTool({"tc", "-n", interface.network, "-s", "-j",
                                                       "qdisc", "show", "dev", interface.device}));
  return ParseCounters(text, shaper);
}

}  // namespace longhaul
