// Serves the dashboard over HTTP to this machine only: one page, its JSON API and a stream of news.
// Read-only.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/http/source.h"

namespace longhaul::coordinator {

struct DashboardOptions {
  std::string listen;   // host:port of a loopback interface; port 0: any free one
  std::string reports;  // folder of sweeps (reports.h); empty: none
  std::string version;  // shown on the page
};

// Checks that `listen` (host:port) is an address of a loopback interface. kInvalidArgument: not
// host:port. kFailedPrecondition: other machines could reach the address.
Status CheckDashboardAddress(const std::string& listen);

// Thread-safe.
class DashboardServer {
 public:
  // Number of threads. Each stream of news occupies one of them.
  static constexpr size_t kThreads = 24;
  static constexpr size_t kStreams = 16;  // maximum of streams; other threads answer requests
  static constexpr size_t kWaiting = 32;  // connections without a thread; more wait in the kernel

  // Starts a server, which answers requests once this returns. `source` must outlive the server.
  // The server's threads call `source`. kUnavailable: the address is in use, or it is not an
  // address of this machine. Other errors are those of CheckDashboardAddress.
  static StatusOr<std::unique_ptr<DashboardServer>> Start(const DashboardOptions& options,
                                                          Source* source);
  // Stops, and waits for threads that are still busy.
  ~DashboardServer();

  // The address that is really bound: "127.0.0.1:8080".
  const std::string& address() const;
  // Tells viewers that something may have changed. Does not block.
  void OnNews();
  // Ends streams and takes no more connections. False: a thread was still busy at the deadline.
  bool Stop(Deadline deadline);

 private:
  struct Impl;
  explicit DashboardServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator
