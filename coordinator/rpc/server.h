// The whole coordinator as one object: store, state machine and gRPC server. main() and tests start
// it.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics/endpoint.h"
#include "base/remote/settings.h"
#include "base/status.h"
#include "coordinator/lead/seat.h"
#include "coordinator/rpc/signing_limits.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/state/state.h"
#include "coordinator/store/blob_scrub.h"
#include "coordinator/store/disk_room.h"
#include "coordinator/store/members.h"
#include "coordinator/store/store_check.h"
#include "proto/identity/authority.h"

namespace longhaul::coordinator {

struct ServerOptions {
  std::string listen = "127.0.0.1:7070";  // host:port; port 0: any free one
  std::string state_dir;                  // created if missing
  // True: plain TCP. False: TLS with the state directory's authority, which is made if missing.
  bool insecure = false;
  std::string token;  // if insecure: every caller's token; empty: none needed, loopback only
  // TLS: file that gets a join token for admins if it does not exist; empty: <state_dir>/token.
  std::string token_file;
  std::string worker_token_file;                           // TLS: the same for workers; empty: none
  absl::Duration certificate_lifetime = kDefaultLifetime;  // members' certificates
  // How long members are listed after their end; then only their names and keys are kept.
  absl::Duration members_kept = kMembersKept;
  std::string http;  // host:port of the dashboard; empty: none
  // PEM files with which the dashboard is encrypted; empty: it is not, and listens on loopback.
  std::string http_certificate, http_key;
  std::string reports;          // folder of sweep reports for the dashboard; empty: none
  std::string relay;            // host:port that relays links between workers; empty: no relay
  std::string relay_advertise;  // address of the relay for workers; empty: the coordinator's host
  absl::Duration hello_timeout = absl::Seconds(10);  // time for a new worker's first message
  metrics::EndpointOptions metrics;                  // for Prometheus; without an address: none
  Claim claim = Claim::kOwn;                         // right to the state directory
  std::optional<Seat> elected;  // a seat of the directory that leads already (Follower::elected)
  std::string peer;             // host:port of the other coordinator, if it is known
  // Credentials with which objects are signed for workers (sign_object.h), and where services are.
  remote::Settings objects;
  // How the disk of the state directory is looked at.
  DiskRoom::Look disk = DiskRoom::LookAt;
  BlobScrub::Pace scrub;         // how blobs are looked through for damage
  StoreCheck::Pace store_check;  // the same for the store
  SigningLimits signing;
  StateOptions state;
};

// Makes a certificate authority and the join tokens of ServerOptions in a state directory, as far
// as they are missing. Returns a sentence for each thing made. kFailedPrecondition: a coordinator
// uses the directory.
StatusOr<std::vector<std::string>> InitState(const ServerOptions& options);

// Makes a new authority in a state directory that no coordinator uses. The one before counts until
// `old_until`, also for certificates and join tokens that it has made. Returns sentences for
// people. kFailedPrecondition: a coordinator uses the directory, it has no authority, or a rotation
// is under way.
StatusOr<std::vector<std::string>> RotateAuthority(const ServerOptions& options,
                                                   absl::Time old_until);

// Thread-safe after Start.
class CoordinatorServer {
 public:
  // Starts a coordinator, which answers calls once this returns. Writes its address to
  // <state_dir>/address. kFailedPrecondition: the address needs a token or is not one of this
  // machine, the directory is in use, the store cannot be used, or another coordinator may lead.
  // kDataLoss: the store is damaged. kAlreadyExists: the port is in use. kInvalidArgument: an
  // option is malformed.
  static StatusOr<std::unique_ptr<CoordinatorServer>> Start(const ServerOptions& options);
  // Stops, and waits for threads that were still busy after Stop.
  ~CoordinatorServer();

  // The address that is really bound: "127.0.0.1:43521".
  const std::string& address() const;
  // The dashboard's URL, "http://127.0.0.1:8080/"; empty: no dashboard.
  std::string dashboard_url() const;
  // Not OK when the coordinator can no longer work; the process should end.
  Status failure() const;
  // The reason is that another coordinator leads, so this one may begin anew as a follower.
  bool stepped_down() const;
  // The reason is that it needs a newer term, so it has to begin anew.
  bool begins_anew() const;
  // Ends every stream, every call and the loop of the state machine within `limit`. False: a thread
  // is still busy with data or uploads, or with a viewer of the dashboard. The process may exit
  // anyway: unfinished work is repeated after the next start.
  bool Stop(absl::Duration limit);

 private:
  friend StatusOr<std::vector<std::string>> InitState(const ServerOptions& options);
  friend StatusOr<std::vector<std::string>> RotateAuthority(const ServerOptions& options,
                                                            absl::Time old_until);
  struct Impl;
  explicit CoordinatorServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace longhaul::coordinator
