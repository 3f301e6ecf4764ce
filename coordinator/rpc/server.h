// The coordinator as one object: store, state machine and gRPC server. What main() and tests start.
#ifndef LONGHAUL_COORDINATOR_RPC_SERVER_H_
#define LONGHAUL_COORDINATOR_RPC_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/standby/takeover.h"
#include "coordinator/state/state.h"
#include "proto/identity/authority.h"

namespace longhaul::coordinator {

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";  // host:port; port 0: any
  std::string state_dir;                  // made where it is missing
  // Plain TCP. Without: TLS, with the authority of the state directory, which is made where there
  // is none.
  bool insecure = false;
  std::string token;  // insecure: that of every caller; empty: everybody may call, on loopback only
  // TLS: gets a join token for admins where there is no such file; empty: <state_dir>/token.
  std::string token_file;
  std::string worker_token_file;  // TLS: likewise a join token for workers; empty: none
  absl::Duration certificate_lifetime = kDefaultLifetime;  // of members
  std::string http;     // host:port of the dashboard, on loopback; empty: none
  std::string reports;  // of sweeps, which the dashboard links to; empty: none
  std::string relay;    // host:port where links between workers are carried; empty: they are not
  std::string relay_advertise;  // where workers reach that; empty: at the coordinator's host
  absl::Duration hello_timeout = absl::Seconds(10);
  absl::Duration standby_is_stale = kStandbyIsStale;  // after it was heard last
  std::string metrics;        // numeric host:port for Prometheus; empty: none
  Claim claim = Claim::kOwn;  // to the state directory; the others begin a new term
  StateOptions state;
};

// Of a state directory that nobody serves now: its authority, and the join tokens of
// ServerOptions, all made where they are missing. What was made, in sentences.
StatusOr<std::vector<std::string>> InitState(const ServerOptions& options);

// Thread-safe after Start.
class CoordinatorServer {
 public:
  // Serves when it returns. Writes the address to <state_dir>/address. kFailedPrecondition for an
  // address that needs a token, a directory in use, a store that cannot be used, and where another
  // coordinator commands; kUnavailable: it cannot be known whether one does; what
  // GuardedPort::Open says of an address that cannot be had.
  static StatusOr<std::unique_ptr<CoordinatorServer>> Start(const ServerOptions& options);
  // Stops and waits for what Stop left.
  ~CoordinatorServer();

  // The address that is really bound: "127.0.0.1:43521".
  const std::string& address() const;
  // That of the dashboard; empty: there is none.
  std::string http_address() const;
  // Not OK when the coordinator can do nothing any more; the process should end.
  Status failure() const;
  // Ends every stream and call and the loop, within `limit`. False: data was still being prepared,
  // or a viewer of the dashboard keeps a thread; the process may exit as it is (what was under way
  // is done again after the next start).
  bool Stop(absl::Duration limit);

 private:
  friend StatusOr<std::vector<std::string>> InitState(const ServerOptions& options);
  struct Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator

#endif  // LONGHAUL_COORDINATOR_RPC_SERVER_H_
