// The CLI's connection to its coordinator, and error messages for people if there is none.
#pragma once

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "cli/interrupt.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "longhaul/v1/observe.grpc.pb.h"
#include "longhaul/v1/standby.grpc.pb.h"
#include "proto/member/access.h"
#include "run/file/topology.h"

namespace longhaul::cli {

struct ClientFlags {
  std::string coordinator;  // --coordinator
  std::string token_file;   // --token-file
  bool insecure = false;    // --insecure
};

// A cluster on this machine (`longhaul cluster up`), as seen by commands that only need its
// coordinator.
struct LocalCluster {
  std::string name;
  std::string address;  // of its coordinator
  std::string token_file;
  std::string credentials_file;  // deleted with the cluster
  bool insecure = false;
};

// The functions that commands need for clusters on this machine. All must be set. The library
// deploy implements them; commands call them on one thread.
struct LocalClusters {
  // Returns the cluster to use if no coordinator is named. Any error means that there is no such
  // cluster; the message tells the user what to do.
  std::function<StatusOr<LocalCluster>()> find;
  // Returns the cluster whose coordinator has this address (host:port); nullopt: there is none.
  std::function<std::optional<LocalCluster>(std::string_view address)> at;
  // Sets the links of the cluster `name` to those of a topology.
  std::function<Status(const std::string& name, const TopologySpec& topology)> apply_topology;
};

struct CoordinatorAccess {
  // Addresses of the coordinator, and of its standby if there is one, in the order in which they
  // are tried.
  std::vector<std::string> addresses;
  std::string address_source;  // "--coordinator", "LONGHAUL_COORDINATOR", "the local cluster 'x'"
  std::string token_file;      // "": none
  std::string token_source;    // "FILE (from --token-file)"; "" without a token
  // File of this user's key and certificate. Client::Open creates it if it does not exist.
  std::string credentials_file;
  bool insecure = false;
  std::string local_cluster;  // the coordinator's cluster on this machine; "": none
};

// Finds the coordinator, its token and whether it is insecure: from --coordinator, --token-file and
// --insecure, else from LONGHAUL_COORDINATOR, LONGHAUL_TOKEN_FILE and LONGHAUL_INSECURE. Uses the
// local cluster only if neither names a coordinator. kFailedPrecondition: there is no local cluster
// either; the message says what to do. kInvalidArgument: the text is not a list of addresses.
//
// The certificate's file is LONGHAUL_IDENTITY. If that is not set, it is the file of the local
// cluster whose coordinator has the first address. If there is no such cluster, it is ADDRESS.pem,
// named by the first address, in LONGHAUL_HOME, else in XDG_CONFIG_HOME/longhaul, else in
// ~/.config/longhaul.
StatusOr<CoordinatorAccess> FindCoordinator(const ClientFlags& flags,
                                            const LocalClusters& clusters);

// The CLI's connection. Threads: one. `interrupt` must outlive the client. When it fires, the
// current call ends and returns kCancelled.
//
// With several coordinators, the client looks for one that serves before it makes the first call.
// If a call finds that its coordinator is away, the client looks again before the next call. It
// never repeats a call, because the coordinator may have carried it out (see once.h).
class Client {
 public:
  // First joins, to get a certificate, if the user has none yet. May block for some seconds. Any
  // error means that there is no connection; its message is for people.
  static StatusOr<std::unique_ptr<Client>> Open(CoordinatorAccess access, Interrupt& interrupt);

  const CoordinatorAccess& access() const { return access_; }
  std::string address() const { return opened_->address(); }  // of the current coordinator
  bool alone() const { return opened_->alone(); }             // whether there is one address
  // The current coordinator's stub. Use it only inside Call.
  v1::ControlService::Stub& stub() { return *StubFor<v1::ControlService::Stub>(); }
  Interrupt& interrupt() { return interrupt_; }

  // Waits until the connection is up, at most `limit`. Call it before you retry a failed call: gRPC
  // hardly tries to connect while no call waits, so retries alone may never connect. With several
  // coordinators it returns at once, because the next call dials anew.
  void AwaitConnection(absl::Duration limit);

  // With several coordinators, the next call looks for the one that serves.
  void LookAnew() { reached_ = false; }

  // Runs `call` with a context that carries the token and ends after `limit` (infinite: never).
  // Returns the error of `call`, worded for people, or kCancelled after an interrupt.
  Status Call(absl::Duration limit,
              const std::function<grpc::Status(grpc::ClientContext& context)>& call);

  // Calls a method of one of the services of a coordinator:
  //   auto runs = client.Get(&v1::ControlService::Stub::ListRuns, v1::ListRunsRequest());
  template <class Stub, class Request, class Reply>
  StatusOr<Reply> Get(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Reply*),
                      const Request& request, absl::Duration limit = absl::Seconds(30)) {
    Reply reply;
    LH_RETURN_IF_ERROR(Call(limit, [&](grpc::ClientContext& context) {
      return (StubFor<Stub>()->*method)(&context, request, &reply);
    }));
    return reply;
  }

  StatusOr<v1::RunStatus> GetRun(const std::string& run) {
    v1::RunRequest request;
    request.set_run(run);
    return Get(&v1::ControlService::Stub::GetRun, request);
  }

  // Passes every message of a stream to `each`, until `each` returns false or the stream ends.
  // Returns OK in both cases, else an error as Call does. There is no time limit. `each` runs on
  // the calling thread.
  template <class Request, class Reply>
  Status Each(std::unique_ptr<grpc::ClientReader<Reply>> (v1::ControlService::Stub::*method)(
                  grpc::ClientContext*, const Request&),
              const Request& request, const std::function<bool(const Reply&)>& each) {
    return Call(absl::InfiniteDuration(), [&](grpc::ClientContext& context) {
      auto reader = (StubFor<v1::ControlService::Stub>()->*method)(&context, request);
      Reply reply;
      while (reader->Read(&reply)) {
        if (each(reply)) continue;
        context.TryCancel();
        (void)reader->Finish();
        return grpc::Status::OK;
      }
      return reader->Finish();
    });
  }

 private:
  Client(CoordinatorAccess access, std::shared_ptr<Access> opened, Interrupt& interrupt);
  // With several coordinators: makes sure that the current one serves.
  Status Reach();
  void Dial();
  void LearnAuthority(const grpc::ClientContext& context);
  // Words the error of a call to the coordinator at `address`; with an empty `address`, to all
  // coordinators.
  static Status Explain(const CoordinatorAccess& access, const std::string& address,
                        const grpc::Status& status, absl::Duration limit);

  template <class Stub>
  Stub* StubFor() const {
    return std::get<std::unique_ptr<Stub>>(stubs_).get();
  }

  CoordinatorAccess access_;
  std::shared_ptr<Access> opened_;
  Interrupt& interrupt_;
  bool reached_ = false;  // the current coordinator serves, or is the only one
  uint64_t generation_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
  // They call the coordinator that was reached last.
  std::tuple<std::unique_ptr<v1::ControlService::Stub>, std::unique_ptr<v1::MemberService::Stub>,
             std::unique_ptr<v1::ObserveService::Stub>, std::unique_ptr<v1::SeatService::Stub>>
      stubs_;
};

}  // namespace longhaul::cli
