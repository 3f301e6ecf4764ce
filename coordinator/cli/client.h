// The CLI's connection to its coordinator, and the messages when there is none.
#ifndef LONGHAUL_COORDINATOR_CLI_CLIENT_H_
#define LONGHAUL_COORDINATOR_CLI_CLIENT_H_

#include <grpcpp/client_context.h>
#include <grpcpp/support/sync_stream.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "coordinator/cli/interrupt.h"
#include "longhaul/v1/control.grpc.pb.h"
#include "longhaul/v1/member.grpc.pb.h"
#include "proto/member/access.h"

namespace longhaul::cli {

struct ClientFlags {
  std::string coordinator;  // --coordinator
  std::string token_file;   // --token-file
  bool insecure = false;    // --insecure
};

struct CoordinatorAccess {
  // Of the coordinator, and of its standby if it has one; in the order in which they are tried.
  std::vector<std::string> addresses;
  std::string address_source;  // "--coordinator", "LONGHAUL_COORDINATOR", "the local cluster 'x'"
  std::string token_file;      // "": none
  std::string token_source;    // "FILE (from --token-file)"
  // Where this user's key and certificate are.
  std::string credentials_file;
  bool insecure = false;
};

// --coordinator, --token-file and --insecure, else LONGHAUL_COORDINATOR, LONGHAUL_TOKEN_FILE and
// LONGHAUL_INSECURE, else the local cluster's state file. kFailedPrecondition, with what to do, if
// none of them names a coordinator. Certificates are in LONGHAUL_IDENTITY, else under the
// coordinator's first address in LONGHAUL_HOME, else longhaul in XDG_CONFIG_HOME or ~/.config.
StatusOr<CoordinatorAccess> FindCoordinator(const ClientFlags& flags);

// From one thread. `interrupt` must outlive the client. It cancels the call under way, which then
// returns kCancelled.
//
// Of several coordinators, one that serves is looked for before the first call and before the one
// after a call that found nobody there. A call that was under way is not made again: nobody knows
// whether it was carried out.
class Client {
 public:
  // Joins where there is no certificate yet. Errors: as Explain has them.
  static StatusOr<std::unique_ptr<Client>> Open(CoordinatorAccess access, Interrupt& interrupt);

  const CoordinatorAccess& access() const { return access_; }
  std::string address() const { return opened_->address(); }  // of the coordinator at hand
  bool alone() const { return opened_->alone(); }             // whether there is one address
  // Inside Call: of the coordinator at hand.
  v1::ControlService::Stub& stub() { return *stub_; }
  Interrupt& interrupt() { return interrupt_; }

  // Works at the connection until there is one, at most so long. Between calls gRPC hardly does:
  // whoever tries again and again, with calls that fail at once, may never get through. Of several
  // coordinators each is dialled anew by the next call, and nothing is done here.
  void AwaitConnection(absl::Duration limit);

  // Runs `call` with a context that carries the token and ends by `limit` (infinite: never).
  Status Call(absl::Duration limit,
              const std::function<grpc::Status(grpc::ClientContext& context)>& call);

  // auto runs = client.Get(&v1::ControlService::Stub::ListRuns, v1::ListRunsRequest());
  template <class Request, class Reply>
  StatusOr<Reply> Get(grpc::Status (v1::ControlService::Stub::*method)(grpc::ClientContext*,
                                                                       const Request&, Reply*),
                      const Request& request, absl::Duration limit = absl::Seconds(30)) {
    Reply reply;
    LH_RETURN_IF_ERROR(Call(limit, [&](grpc::ClientContext& context) {
      return (stub_.get()->*method)(&context, request, &reply);
    }));
    return reply;
  }

  // The same of the members' service.
  template <class Request, class Reply>
  StatusOr<Reply> Get(grpc::Status (v1::MemberService::Stub::*method)(grpc::ClientContext*,
                                                                      const Request&, Reply*),
                      const Request& request, absl::Duration limit = absl::Seconds(30)) {
    Reply reply;
    LH_RETURN_IF_ERROR(Call(limit, [&](grpc::ClientContext& context) {
      return (members_.get()->*method)(&context, request, &reply);
    }));
    return reply;
  }

  // Hands every message of a stream to `each`, which returns whether to go on. OK at the stream's
  // end, and if `each` ended it.
  template <class Request, class Reply>
  Status Each(std::unique_ptr<grpc::ClientReader<Reply>> (v1::ControlService::Stub::*method)(
                  grpc::ClientContext*, const Request&),
              const Request& request, const std::function<bool(const Reply&)>& each) {
    return Call(absl::InfiniteDuration(), [&](grpc::ClientContext& context) {
      auto reader = (stub_.get()->*method)(&context, request);
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
  // Makes sure that the coordinator at hand serves, if it is not alone.
  Status Reach();
  void Dial();
  // Of a call to the coordinator at `address`; empty: to any of them.
  static Status Explain(const CoordinatorAccess& access, const std::string& address,
                        const grpc::Status& status, absl::Duration limit);

  CoordinatorAccess access_;
  std::shared_ptr<Access> opened_;
  Interrupt& interrupt_;
  bool reached_ = false;  // the coordinator at hand serves, or is alone
  uint64_t generation_ = 0;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::ControlService::Stub> stub_;
  std::unique_ptr<v1::MemberService::Stub> members_;
};

}  // namespace longhaul::cli

#endif  // LONGHAUL_COORDINATOR_CLI_CLIENT_H_
