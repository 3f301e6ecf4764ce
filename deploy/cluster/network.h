// The networks of a local cluster NAME, all in namespaces of their own:
//
//   host            lh-NAME-net (coordinator)              lh-NAME-w1 (worker1)
//   lh-NAME ------- bridge "control" 10.78.K.1 ----------- control 10.78.K.11   not shaped
//   10.78.K.254     bridge "data"  d1 <- downlink shaped - data    10.77.K.11   uplink shaped
//
// The data network stands for the wide area. It connects only workers. A worker's uplink is shaped
// on the worker's own interface, and its downlink on the worker's port of the bridge. The control
// network (coordinator, workers, the `longhaul` program on the host) is separate, so that full data
// links never delay a heartbeat. The coordinator listens inside the bridges' namespace, which the
// host reaches over one veth pair: no process listens on the host, and its firewall only sees an
// outgoing connection. K is a number for which the host has no route to 10.78.K.0/24
// (ChooseSubnet).
//
// If a link has delay, jitter or loss and the cluster does not use netem, the ports d1, d2, ... are
// taken off the bridge "data". The relay (relay/relay.h), a process in the bridges' namespace, then
// takes the place of the bridge. netem is the kernel's qdisc that delays and drops packets.
//
// Names: namespaces are "lh-NAME-net" and "lh-NAME-w1"..., the host's one interface is "lh-NAME".
// Later commands find everything by these names.
//
// Functions that change something run `ip` with RunTool (process.h), from the program's main
// thread, and return the errors of RunTool. After an error the network may be incomplete;
// DestroyNetwork removes it. In the functions below, `cluster` is NAME, `subnet` is K, and `number`
// is a worker's number, counted from 1.
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

// Checks that a name has 1 to 12 of the characters a-z, 0-9 and '_', else kInvalidArgument.
// "lh-NAME" is then a valid name of an interface, and no name of one cluster looks like a name of
// another.
Status CheckClusterName(std::string_view name);

std::string BridgeNetwork(std::string_view cluster);                   // "lh-local-net"
std::string WorkerNetwork(std::string_view cluster, uint32_t number);  // "lh-local-w2"; from 1
std::string HostInterface(std::string_view cluster);                   // "lh-local"
std::string ControlAddress(uint32_t subnet, uint32_t number);          // "10.78.0.12" for worker2
std::string DataAddress(uint32_t subnet, uint32_t number);             // "10.77.0.12"
std::string CoordinatorAddress(uint32_t subnet);                       // "10.78.0.1:7070"

// Return the interfaces at which tc shapes the data that a worker sends (Uplink) and receives
// (Downlink).
Interface Uplink(std::string_view cluster, uint32_t number);
Interface Downlink(std::string_view cluster, uint32_t number);

// Returns the first K without a route to 10.78.K.0/24. If routes cover every K, as those of a VPN
// may, returns the first K without a route of 24 bits or more. `routes_json` is the output of
// `ip -j route show table all`. kResourceExhausted: there is no such K. kInternal: not JSON. Pure.
StatusOr<uint32_t> ChooseSubnet(std::string_view routes_json);

// Chooses a free subnet. Makes the bridges' namespace with the coordinator's address, and the
// interface of the host. Returns the subnet. Two clusters that come up at the same time get
// different subnets. kFailedPrecondition: another process has been choosing a subnet for 30 s.
StatusOr<uint32_t> CreateBridges(std::string_view cluster);
// Makes a worker's namespace with both interfaces, not shaped.
Status CreateWorkerNetwork(std::string_view cluster, uint32_t subnet, uint32_t number);

// Takes a worker's port off the bridge "data" (`on` is false), or puts it back. The worker's
// interface stays up, as when a line breaks somewhere else.
Status SetOnBridge(std::string_view cluster, uint32_t number, bool on);

// The namespaces ("lh-local-w1"), sorted, and the host interface of a cluster that exist now.
struct NetworkRemains {
  std::vector<std::string> networks;
  bool host_interface = false;
  bool empty() const { return networks.empty() && !host_interface; }
};
// Finds the remains by their names. Cannot fail.
NetworkRemains FindNetwork(std::string_view cluster);
// Deletes everything that FindNetwork finds. Continues after an error, and returns the first one.
Status DestroyNetwork(std::string_view cluster);

}  // namespace longhaul
