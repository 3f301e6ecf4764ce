// Lets only chosen hosts connect to UCX's ports, because UCX aborts the process on foreign bytes.
// The kernel drops segments of all other hosts before UCX sees them: a socket filter (BPF) compares
// the sender's IPv4 address. Most kernels let every process do this.
//
// A filter admits hosts, not processes: whoever runs programs on an admitted host can still
// connect.
//
// Threads: all on the loop.
#pragma once

#include <linux/filter.h>

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "base/status.h"
#include "transport/p2p/ucx/socket_address.h"

namespace longhaul::transport::ucx {

// An IPv4 address as a number: 127.0.0.1 is 0x7f000001.
using Host = uint32_t;
// How many hosts a filter can admit at the same time. The kernel takes 4,096 instructions.
inline constexpr size_t kMostHosts = 1024;

// Returns the filter that passes segments from these hosts alone. `hosts` has at most kMostHosts.
std::vector<sock_filter> FilterFor(const std::set<Host>& hosts);

// Returns the descriptors of this process that listen for TCP connections over IPv4. Errors: by
// errno, where /proc is not there.
StatusOr<std::set<int>> ListeningSockets();

// OK: the kernel takes filters of this process. kFailedPrecondition: it does not.
Status TakesFilters();

class PortFilter : public std::enable_shared_from_this<PortFilter> {
 public:
  // Admits nobody yet. Closes the connections that wait in the sockets' queues already. `sockets`:
  // listening sockets, which the filter does not own. `own`: the address of this side. Errors: by
  // errno, if the kernel takes no filter.
  static StatusOr<std::shared_ptr<PortFilter>> Create(std::set<int> sockets,
                                                      const SocketAddress& own);

  // Lets these hosts connect until the result is destroyed. A host that is this machine may connect
  // from all addresses with which the kernel dials `own`. Ignores addresses that are not IPv4.
  std::shared_ptr<void> Admit(const std::vector<SocketAddress>& peers);
  // Lets every host connect until the result is destroyed.
  std::shared_ptr<void> AdmitAll();
  // Touches the sockets no longer. Call it before they are closed.
  void Close() { sockets_.clear(); }

 private:
  PortFilter(std::set<int> sockets, Host own) : sockets_(std::move(sockets)), own_(own) {}
  std::shared_ptr<void> Hold(std::set<Host> hosts);
  Status Apply() const;
  void ApplyOrLog() const;

  std::set<int> sockets_;
  const Host own_;
  std::map<Host, int> admitted_;  // how many results of Admit name the host
  int all_ = 0;                   // how many results of AdmitAll there are
};

}  // namespace longhaul::transport::ucx
