#include "deploy/cluster/network.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/unique_fd.h"
#include "deploy/cluster/relay/control.h"

namespace longhaul {
namespace {

constexpr std::string_view kNamespaceFolder = "/run/netns";
constexpr uint32_t kFirstWorkerHost = 10;  // worker1 is .11
constexpr uint32_t kCoordinatorHost = 1;
constexpr uint32_t kHostHost = 254;
constexpr uint32_t kCoordinatorPort = 7070;
constexpr uint32_t kDataNet = 77;
constexpr uint32_t kControlNet = 78;
constexpr absl::Duration kSubnetPatience = absl::Seconds(30);

std::string Address(uint32_t net, uint32_t subnet, uint32_t host) {
  return fmt::format("10.{}.{}.{}", net, subnet, host);
}

Status Ip(const Command& arguments) {
  Command command = {"ip"};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return RunTool(command).status();
}

Status Raise(const std::string& network, const std::string& device, const Command& more = {}) {
  Command arguments = {"-n", network, "link", "set", "dev", device};
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.push_back("up");
  return Ip(arguments);
}

// Settings (below /proc/sys/net/) of a namespace, where they may be written; the defaults do else.
// /proc/sys/net shows the namespace of the thread that opens it, so a thread goes there.
void WriteSettings(const std::string& network,
                   const std::vector<std::pair<std::string, std::string>>& settings) {
  std::thread([&] {
    const UniqueFd fd(
        open(fmt::format("{}/{}", kNamespaceFolder, network).c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd || setns(fd.get(), CLONE_NEWNET) != 0) return;
    for (const auto& [name, value] : settings) std::ofstream("/proc/sys/net/" + name) << value;
  }).join();
}

// A namespace whose links stay silent until a daemon speaks: IPv6's own chatter (neighbours,
// multicast groups) would be counted as traffic.
Status AddSilentNetwork(const std::string& network) {
  LH_RETURN_IF_ERROR(Ip({"netns", "add", network}));
  WriteSettings(network, {{"ipv6/conf/all/disable_ipv6", "1"},
                          {"ipv6/conf/default/disable_ipv6", "1"},
                          // A round trip of 100 ms at 1 Gbit/s holds 12.5 MB.
                          {"ipv4/tcp_wmem", "4096 16384 33554432"},
                          // All of it to begin with, too: acknowledgements pass data that waits
                          // (shaping.h), which then arrives with one of its own that is old. Where
                          // that is by more than the widest window that its sender has offered so
                          // far, TCP takes it for an attack (RFC 5961) and drops it.
                          {"ipv4/tcp_rmem", "4096 33554432 33554432"},
                          // A pipeline's links pause in every step, and what TCP knows of a long
                          // line takes it ten round trips to find out again.
                          {"ipv4/tcp_slow_start_after_idle", "0"},
                          // What the links of the run before have lost is not this one's business:
                          // with what TCP remembers of it, a long line takes long to fill.
                          {"ipv4/tcp_no_metrics_save", "1"}});
  return Raise(network, "lo");
}

// Sets one interface's limits, because a namespace has no defaults of its own for them.
void BePatientWithNeighbours(const std::string& network, const std::string& device) {
  const std::string folder = fmt::format("ipv4/neigh/{}/", device);
  WriteSettings(network, {// After a cut a worker looks for its neighbours' addresses again, by
                          // default once a second. In a wide area it would look for a router, which
                          // no cut of the line takes away.
                          {folder + "retrans_time_ms", "50"},
                          // For longer than the slowest round trip: questions have a delay, too.
                          {folder + "mcast_solicit", "500"},
                          {folder + "ucast_solicit", "500"}});
}

// What comes in is worked on by all cores, not by that of whoever sent it: one core would otherwise
// have to receive for all workers what the relay lets through. Where the kernel has no RPS, it
// does.
void ReceiveOnAllCores(const std::string& network, const std::string& device) {
  cpu_set_t mine;
  if (sched_getaffinity(0, sizeof mine, &mine) != 0) return;
  std::string mask;
  for (int word = CPU_SETSIZE / 32 - 1; word >= 0; --word) {
    uint32_t bits = 0;
    for (int bit = 0; bit < 32; ++bit) {
      if (CPU_ISSET(32 * word + bit, &mine)) bits |= uint32_t{1} << bit;
    }
    if (bits == 0 && mask.empty()) continue;
    mask += fmt::format("{}{:08x}", mask.empty() ? "" : ",", bits);
  }
  // `ip netns exec` shows /sys of that namespace.
  RunTool({"ip", "netns", "exec", network, "sh", "-c",
           fmt::format("echo {} > /sys/class/net/{}/queues/rx-0/rps_cpus", mask, device)})
      .IgnoreError();
}

Status AddAddress(const std::string& network, const std::string& device,
                  const std::string& address) {
  return Ip({"-n", network, "address", "add", address + "/24", "dev", device});
}

// The same congestion control on every machine; a namespace cannot change the kernel's default.
Status UseCubic(const std::string& network, const std::string& device, uint32_t net,
                uint32_t subnet, const std::string& source) {
  StatusOr<std::string> known =
      ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control", 4096);
  if (!known.ok() || known->find("cubic") == std::string::npos) return absl::OkStatus();
  return Ip({"-n", network, "route", "replace", Address(net, subnet, 0) + "/24", "dev", device,
             "proto", "kernel", "scope", "link", "src", source, "congctl", "cubic"});
}

// "10.78.3.0/24", "10.0.0.0/8" or "10.78.3.7" as a range of addresses.
struct Range {
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t bits = 32;  // of the prefix
};
bool ParseRange(const std::string& text, Range* range) {
  const size_t slash = text.find('/');
  in_addr address{};
  if (inet_pton(AF_INET, text.substr(0, slash).c_str(), &address) != 1) return false;
  uint32_t& bits = range->bits;
  bits = 32;
  if (slash != std::string::npos) {
    const auto parsed = std::from_chars(text.data() + slash + 1, text.data() + text.size(), bits);
    if (parsed.ec != std::errc() || bits > 32) return false;
  }
  const uint32_t mask = bits == 0 ? 0 : ~uint32_t{0} << (32 - bits);
  range->first = ntohl(address.s_addr) & mask;
  range->last = range->first | ~mask;
  return true;
}

}  // namespace

Status CheckClusterName(std::string_view name) {
  const bool fits =
      !name.empty() && name.size() <= 12 &&
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_") == std::string_view::npos;
  if (fits) return absl::OkStatus();
  return InvalidArgument("cluster name '{}': expected 1 to 12 of the characters a-z, 0-9 and _",
                         name);
}

std::string BridgeNetwork(std::string_view cluster) {
  return fmt::format("lh-{}-net", cluster);
}
std::string WorkerNetwork(std::string_view cluster, uint32_t number) {
  return fmt::format("lh-{}-w{}", cluster, number);
}
std::string HostInterface(std::string_view cluster) {
  return fmt::format("lh-{}", cluster);
}
std::string ControlAddress(uint32_t subnet, uint32_t number) {
  return Address(kControlNet, subnet, kFirstWorkerHost + number);
}
std::string DataAddress(uint32_t subnet, uint32_t number) {
  return Address(kDataNet, subnet, kFirstWorkerHost + number);
}
std::string CoordinatorAddress(uint32_t subnet) {
  return fmt::format("{}:{}", Address(kControlNet, subnet, kCoordinatorHost), kCoordinatorPort);
}

Interface Uplink(std::string_view cluster, uint32_t number) {
  return {WorkerNetwork(cluster, number), "data"};
}
Interface Downlink(std::string_view cluster, uint32_t number) {
  return {BridgeNetwork(cluster), fmt::format("d{}", number)};
}

StatusOr<uint32_t> ChooseSubnet(std::string_view routes_json) {
  std::array<bool, 256> covered{};  // by any route
  std::array<bool, 256> taken{};    // by one that is as specific as ours would be
  try {
    for (const auto& route : nlohmann::json::parse(routes_json)) {
      Range range;
      if (!ParseRange(route.value("dst", ""), &range)) continue;  // "default"
      for (uint32_t subnet = 0; subnet < 256; ++subnet) {
        const uint32_t first = (10u << 24) | (kControlNet << 16) | (subnet << 8);
        if (range.first > first + 255 || range.last < first) continue;
        covered[subnet] = true;
        taken[subnet] |= range.bits >= 24;
      }
    }
  } catch (const nlohmann::json::exception& error) {
    return Internal("cannot read the output of ip: {}", std::string_view(error.what()));
  }
  for (const auto& avoided : {covered, taken}) {
    const auto free = std::ranges::find(avoided, false);
    if (free != avoided.end()) return static_cast<uint32_t>(free - avoided.begin());
  }
  return absl::ResourceExhaustedError(
      "all 256 networks of 10.78.0.0/16 are in use on this machine; see `ip route show table all`");
}

namespace {

// Held while a subnet is chosen and taken. A name among the abstract sockets: each network
// namespace has its own, as it has its own routes, and the kernel gives it back when the process
// dies.
StatusOr<UniqueFd> LockSubnets(Deadline deadline) {
  UniqueFd lock(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!lock) return FromErrno("cannot make a socket", errno);
  sockaddr_un name{.sun_family = AF_UNIX, .sun_path = "\0longhaul-cluster-subnets"};
  while (::bind(lock.get(), reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) {
    if (errno != EADDRINUSE) return FromErrno("cannot bind a socket", errno);
    if (deadline.Expired()) {
      return absl::FailedPreconditionError(
          "another `longhaul cluster up` has been choosing its addresses for a long time; see "
          "`ss -xp | grep longhaul-cluster`");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return lock;
}

}  // namespace

StatusOr<uint32_t> CreateBridges(std::string_view cluster) {
  LH_ASSIGN_OR_RETURN(const UniqueFd lock, LockSubnets(Deadline::After(kSubnetPatience)));
  LH_ASSIGN_OR_RETURN(const std::string routes,
                      RunTool({"ip", "-j", "-4", "route", "show", "table", "all"}));
  LH_ASSIGN_OR_RETURN(const uint32_t subnet, ChooseSubnet(routes));
  const std::string network = BridgeNetwork(cluster);
  LH_RETURN_IF_ERROR(AddSilentNetwork(network));
  for (const char* bridge : {"data", "control"}) {
    LH_RETURN_IF_ERROR(Ip(
        {"-n", network, "link", "add", "name", bridge, "type", "bridge", "mcast_snooping", "0"}));
    LH_RETURN_IF_ERROR(Raise(network, bridge));
  }
  LH_RETURN_IF_ERROR(
      AddAddress(network, "control", Address(kControlNet, subnet, kCoordinatorHost)));
  const std::string host = HostInterface(cluster);
  LH_RETURN_IF_ERROR(
      Ip({"link", "add", "name", host, "type", "veth", "peer", "name", "host", "netns", network}));
  LH_RETURN_IF_ERROR(Raise(network, "host", {"master", "control"}));
  LH_RETURN_IF_ERROR(
      Ip({"address", "add", Address(kControlNet, subnet, kHostHost) + "/24", "dev", host}));
  LH_RETURN_IF_ERROR(Ip({"link", "set", "dev", host, "up"}));
  return subnet;
}

Status CreateWorkerNetwork(std::string_view cluster, uint32_t subnet, uint32_t number) {
  const std::string bridges = BridgeNetwork(cluster);
  const std::string network = WorkerNetwork(cluster, number);
  LH_RETURN_IF_ERROR(AddSilentNetwork(network));
  const auto join = [&](char port_letter, const std::string& bridge, const std::string& address) {
    const std::string port = fmt::format("{}{}", port_letter, number);
    LH_RETURN_IF_ERROR(
        Ip({"-n", bridges, "link", "add", "name", port, "type", "veth", "peer", "name", bridge,
            "address", relay::MacAddress(number), "netns", network}));
    LH_RETURN_IF_ERROR(Raise(bridges, port, {"master", bridge}));
    LH_RETURN_IF_ERROR(AddAddress(network, bridge, address));
    return Raise(network, bridge);
  };
  const std::string data_address = DataAddress(subnet, number);
  LH_RETURN_IF_ERROR(join('d', "data", data_address));
  BePatientWithNeighbours(network, "data");
  ReceiveOnAllCores(network, "data");
  LH_RETURN_IF_ERROR(join('c', "control", ControlAddress(subnet, number)));
  return UseCubic(network, "data", kDataNet, subnet, data_address);
}

Status SetOnBridge(std::string_view cluster, uint32_t number, bool on) {
  // The port leaves the bridge. Taking an interface down would tell the worker's kernel, which no
  // broken line elsewhere does; and a port's spanning-tree state does not stay as it is set.
  const Interface port = Downlink(cluster, number);
  Command arguments = {"-n", port.network, "link", "set", "dev", port.device};
  if (on) {
    arguments.insert(arguments.end(), {"master", "data"});
  } else {
    arguments.push_back("nomaster");
  }
  return Ip(arguments);
}

NetworkRemains FindNetwork(std::string_view cluster) {
  NetworkRemains remains;
  const std::string prefix = fmt::format("lh-{}-", cluster);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kNamespaceFolder, ignored)) {
    const std::string name = entry.path().filename();
    if (name.starts_with(prefix)) remains.networks.push_back(name);
  }
  std::ranges::sort(remains.networks);
  remains.host_interface =
      access(fmt::format("/sys/class/net/{}", HostInterface(cluster)).c_str(), F_OK) == 0;
  return remains;
}

Status DestroyNetwork(std::string_view cluster) {
  Status first = absl::OkStatus();
  const NetworkRemains remains = FindNetwork(cluster);
  // A namespace's own interfaces go when the kernel gets to it; the host's would linger till then.
  if (remains.host_interface) first.Update(Ip({"link", "del", "dev", HostInterface(cluster)}));
  for (const std::string& network : remains.networks) {
    first.Update(Ip({"netns", "del", network}));
  }
  return first;
}

}  // namespace longhaul
