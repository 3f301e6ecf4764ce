#include "coordinator/standby/waiting_port.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <optional>
#include <string_view>
#include <utility>

#include "absl/time/clock.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/guarded_port.h"
#include "proto/rpc/status.h"

namespace longhaul::coordinator {
namespace {

constexpr std::string_view kSession = "/longhaul.v1.WorkerService/Session";
constexpr std::string_view kGetTerm = "/longhaul.v1.StandbyService/GetTerm";

class EndAtOnce : public grpc::ServerGenericBidiReactor {
 public:
  explicit EndAtOnce(const Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

}  // namespace

struct WaitingPort::Impl : public grpc::CallbackGenericService {
  std::optional<GuardedPort> port;
  std::optional<WitnessLines> witness;
  std::optional<SeatLines> seats;
  std::string answer;
  std::function<void(const std::string& worker_id)> on_worker;
  std::unique_ptr<grpc::Server> server;

  grpc::ServerGenericBidiReactor* CreateReactor(
      grpc::GenericCallbackServerContext* context) override {
    const std::string& method = context->method();
    if (method == kGetTerm) return new EndAtOnce(absl::FailedPreconditionError(answer));
    // A worker of a coordinator that lives may call for other things.
    if (method != kSession) return new EndAtOnce(absl::UnavailableError(answer));
    const StatusOr<Caller> caller = port->Identify(*context);
    if (caller.ok() && caller->member && caller->member->role == Role::kWorker) {
      on_worker(caller->member->worker_id);
    }
    return new EndAtOnce(absl::UnavailableError(answer));
  }

  // By its certificate alone: a coordinator that does not lead has no list of members in use.
  // Returns the member's name.
  StatusOr<std::string> Admit(grpc::ServerContext& context, Role role) {
    LH_ASSIGN_OR_RETURN(const Caller caller, port->Identify(context));
    if (!caller.member || caller.member->role != role) return absl::UnavailableError(answer);
    port->LetIn(context, caller);
    return caller.member->name;
  }
};

StatusOr<std::unique_ptr<WaitingPort>> WaitingPort::Open(
    const std::string& address, const PortSecurity& security, std::string answer,
    std::function<void(const std::string& worker_id)> on_worker, WitnessLines::Handler witness,
    std::function<v1::VoteReply(const v1::VoteRequest& request)> on_vote) {
  auto impl = std::make_unique<Impl>();
  impl->answer = std::move(answer);
  impl->on_worker = std::move(on_worker);
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  impl->port.emplace(security, &builder);
  impl->witness.emplace(
      [raw = impl.get()](grpc::ServerContext& context) {
        return raw->Admit(context, Role::kWitness);
      },
      std::move(witness));
  impl->witness->Register(&builder);
  impl->seats.emplace(SeatLines::Handler{
      .on_vote = [raw = impl.get(), on_vote = std::move(on_vote)](
                     grpc::ServerContext& context,
                     const v1::VoteRequest& request) -> StatusOr<v1::VoteReply> {
        LH_RETURN_IF_ERROR(raw->Admit(context, Role::kAdmin).status());
        return on_vote(request);
      },
      .on_lead = [raw = impl.get()](grpc::ServerContext&, const v1::LeadRequest&)
          -> StatusOr<v1::LeadReply> { return absl::UnavailableError(raw->answer); }});
  impl->seats->Register(&builder);
  builder.RegisterCallbackGenericService(impl.get());
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("gRPC could not start its server");
  std::unique_ptr<WaitingPort> waiting(new WaitingPort(std::move(impl)));
  LH_RETURN_IF_ERROR(Annotate(waiting->impl_->port->Open(address), "--listen"));
  return waiting;
}

WaitingPort::WaitingPort(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

WaitingPort::~WaitingPort() {
  impl_->port->Close();
  impl_->witness->Close();
  impl_->server->Shutdown(absl::ToChronoTime(absl::Now()));
  impl_->server.reset();
}

const std::string& WaitingPort::address() const {
  return impl_->port->address();
}

WitnessLines& WaitingPort::witness() {
  return *impl_->witness;
}

}  // namespace longhaul::coordinator
