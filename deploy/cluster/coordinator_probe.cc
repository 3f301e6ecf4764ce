#include "deploy/cluster/coordinator_probe.h"

#include <utility>

#include "longhaul/v1/control.grpc.pb.h"
#include "proto/rpc/auth.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/status.h"

namespace longhaul {

struct CoordinatorProbe::Impl {
  std::string token;
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::ControlService::Stub> stub;
};

CoordinatorProbe::CoordinatorProbe(const std::string& address, std::string token)
    : impl_(std::make_unique<Impl>()) {
  impl_->token = std::move(token);
  impl_->channel = MakeChannel(address);
  impl_->stub = v1::ControlService::NewStub(impl_->channel);
}

CoordinatorProbe::~CoordinatorProbe() = default;

StatusOr<ConnectedWorkers> CoordinatorProbe::Connected(absl::Duration limit) {
  grpc::ClientContext context;
  AddToken(&context, impl_->token);
  // A call that fails at once leaves nobody to drive the channel's next attempt to connect: gRPC's
  // sockets are polled by those who wait.
  context.set_wait_for_ready(true);
  context.set_deadline(absl::ToChronoTime(absl::Now() + limit));
  v1::ListWorkersReply reply;
  const grpc::Status status = impl_->stub->ListWorkers(&context, v1::ListWorkersRequest(), &reply);
  LH_RETURN_IF_ERROR(FromGrpc(status, "asking the coordinator for its workers"));
  ConnectedWorkers connected;
  for (const v1::WorkerStatus& worker : reply.workers()) {
    if (worker.connected()) connected.emplace(worker.name(), static_cast<pid_t>(worker.pid()));
  }
  return connected;
}

}  // namespace longhaul
