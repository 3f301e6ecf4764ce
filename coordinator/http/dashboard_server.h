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
  std::string listen;   // host:port of a loopback interface; port 0: any
  std::string reports;  // folder with a folder for each sweep; empty: none
  std::string version;  // shown on the page
};

// kFailedPrecondition if other machines could reach the address.
Status CheckDashboardAddress(const std::string& listen);

// Thread-safe.
class DashboardServer {
 public:
  // A viewer who follows news occupies one thread.
  static constexpr size_t kThreads = 24;
  static constexpr size_t kStreams = 16;  // maximum, so that other calls are still answered
  static constexpr size_t kWaiting = 32;  // connections; more wait in the kernel

  // The server is ready when it returns. `source` must outlive it. Errors: those of
  // CheckDashboardAddress; kUnavailable: the address is in use.
  static StatusOr<std::unique_ptr<DashboardServer>> Start(const DashboardOptions& options,
                                                          Source* source);
  // Waits for threads that were still busy after Stop.
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
