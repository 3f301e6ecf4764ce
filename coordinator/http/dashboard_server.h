// Serves the dashboard: one page, its JSON API and a stream of news. Without TLS it serves this
// machine only, where everybody reads and changes need a key (changes.h). With TLS everything but
// the page itself needs a key.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "coordinator/http/changes.h"
#include "coordinator/http/joining.h"
#include "coordinator/http/source.h"

namespace longhaul::coordinator {

struct DashboardOptions {
  std::string listen;   // host:port; of a loopback interface without TLS; port 0: any free one
  std::string reports;  // folder of sweeps (reports.h); empty: none
  std::string version;  // shown on the page
  std::string certificate_file = {}, key_file = {};  // PEM; empty: no TLS
  Joining joining = {};                              // for those who want to add a worker
};

// Checks that `listen` (host:port) is an address of a loopback interface, unless the dashboard is
// encrypted. kInvalidArgument: not host:port. kFailedPrecondition: other machines could reach the
// address.
Status CheckDashboardAddress(const std::string& listen, bool encrypted = false);

// Thread-safe.
class DashboardServer {
 public:
  // Number of threads. Each stream of news occupies one of them.
  static constexpr size_t kThreads = 24;
  static constexpr size_t kStreams = 16;  // maximum of streams; other threads answer requests
  static constexpr size_t kWaiting = 32;  // connections without a thread; more wait in the kernel

  // Starts a server, which answers requests once this returns. `source` and `changes` must outlive
  // the server, whose threads call them. `changes`: null: nothing can be changed. kUnavailable: the
  // address is in use, or it is not an address of this machine. kFailedPrecondition: the
  // certificate cannot be used. Other errors are those of CheckDashboardAddress.
  static StatusOr<std::unique_ptr<DashboardServer>> Start(const DashboardOptions& options,
                                                          Source* source,
                                                          Changes* changes = nullptr);
  // Stops, and waits for threads that are still busy.
  ~DashboardServer();

  // The address that is really bound: "127.0.0.1:8080".
  const std::string& address() const;
  bool encrypted() const;
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
