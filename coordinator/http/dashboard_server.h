// Serves the dashboard: one page, its JSON API and a stream of news, over HTTP and to this machine
// alone. Nothing can be changed through it.
#ifndef LONGHAUL_COORDINATOR_HTTP_DASHBOARD_SERVER_H_
#define LONGHAUL_COORDINATOR_HTTP_DASHBOARD_SERVER_H_

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
  std::string version;  // shown
};

// kFailedPrecondition: an address that others could reach.
Status CheckDashboardAddress(const std::string& listen);

// Thread-safe.
class DashboardServer {
 public:
  // Viewers who follow news each hold one of the threads.
  static constexpr size_t kThreads = 24;
  static constexpr size_t kStreams = 16;  // at most, so that others are answered yet
  static constexpr size_t kWaiting = 32;  // connections; more wait in the kernel

  // Serves when it returns. `source` must outlive it. What CheckDashboardAddress says;
  // kUnavailable: the address cannot be had.
  static StatusOr<std::unique_ptr<DashboardServer>> Start(const DashboardOptions& options,
                                                          Source* source);
  // Waits for what Stop left.
  ~DashboardServer();

  // "127.0.0.1:8080": the port that is really bound.
  const std::string& address() const;
  // Something may have changed. Does not block.
  void OnNews();
  // Ends streams and takes no more connections. False: a caller kept a thread beyond the deadline.
  bool Stop(Deadline deadline);

 private:
  struct Impl;
  explicit DashboardServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_HTTP_DASHBOARD_SERVER_H_
