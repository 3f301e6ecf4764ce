// The networks of a local cluster NAME, all in namespaces of their own:
//
//   host            lh-NAME-net (coordinator)              lh-NAME-w1 (worker1)
//   lh-NAME ------- bridge "control" 10.78.K.1 ----------- control 10.78.K.11   not shaped
//   10.78.K.254     bridge "data"  d1 <- downlink shaped - data    10.77.K.11   uplink shaped
//
// The data network is the wide area. It connects only workers: a worker's uplink is shaped on its
// own interface and its downlink on its port of the bridge. The control network (coordinator,
// workers, the `longhaul` program on the host) is separate, so that full data links never delay a
// heartbeat. The coordinator listens inside the bridges' namespace, which the host reaches over one
// veth pair: no process listens on the host, and its firewall only sees an outgoing connection. K
// is the first number of which the host uses no address or route.
//
// While a link has delay, jitter or loss and the kernel has no netem, all d1, d2... are off the
// bridge, and the relay (relay/relay.h), a process in the bridges' namespace, takes its place.
//
// Names: namespaces are "lh-NAME-net" and "lh-NAME-w1"..., the host's one interface is "lh-NAME".
// Later commands find everything by these names.
//
// Functions that change something run `ip`, and leave incomplete networks to DestroyNetwork.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "deploy/cluster/shaping.h"
#include "deploy/cluster/state_file.h"

namespace longhaul {

inline constexpr uint32_t kMaxClusterWorkers = 64;

// 1 to 12 of a-z, 0-9 and '_', so that "lh-NAME" is a valid interface and names of two clusters
// cannot be mistaken for each other.
Status CheckClusterName(std::string_view name);

std::string BridgeNetwork(std::string_view cluster);                   // "lh-local-net"
std::string WorkerNetwork(std::string_view cluster, uint32_t number);  // "lh-local-w2"; from 1
std::string HostInterface(std::string_view cluster);                   // "lh-local"
std::string ControlAddress(uint32_t subnet, uint32_t number);          // "10.78.0.12" for worker2
std::string DataAddress(uint32_t subnet, uint32_t number);             // "10.77.0.12"
std::string CoordinatorAddress(uint32_t subnet);                       // "10.78.0.1:7070"

// The two interfaces at which worker `number` is shaped.
Interface Uplink(std::string_view cluster, uint32_t number);
Interface Downlink(std::string_view cluster, uint32_t number);

// The first free third byte, given the output of `ip -j route show table all`. kResourceExhausted:
// none.
StatusOr<uint32_t> ChooseSubnet(std::string_view routes_json);

// Makes the bridges' namespace with the coordinator's address, and the host's route to it, in a
// free subnet. Returns the subnet. Two clusters that come up at the same time get different ones.
StatusOr<uint32_t> CreateBridges(std::string_view cluster);
// A worker's namespace with both interfaces, not shaped.
Status CreateWorkerNetwork(std::string_view cluster, uint32_t subnet, uint32_t number);

// Takes a worker's port off the bridge "data", or puts it back. Neither end is notified, as with a
// broken line.
Status SetOnBridge(std::string_view cluster, uint32_t number, bool on);

// The existing namespaces ("lh-local-w1") and host interface of a cluster, found by name.
struct NetworkRemains {
  std::vector<std::string> networks;
  bool host_interface = false;
  bool empty() const { return networks.empty() && !host_interface; }
};
NetworkRemains FindNetwork(std::string_view cluster);
// Deletes the results of FindNetwork. Continues after an error and returns the first one.
Status DestroyNetwork(std::string_view cluster);

}  // namespace longhaul
