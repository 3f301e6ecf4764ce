#include "deploy/cluster/coordinator_probe.h"

#include <unistd.h>

#include <algorithm>

#include "longhaul/v1/control.grpc.pb.h"
#include "proto/member/access.h"
#include "proto/rpc/status.h"

namespace longhaul {
namespace {

constexpr absl::Duration kJoinLimit = absl::Seconds(2);

}  // namespace

struct CoordinatorProbe::Impl {
  AccessOptions options;
  std::shared_ptr<Access> access;  // null: not joined yet
  std::unique_ptr<v1::ControlService::Stub> stub;

  // As the user of the cluster, whose certificate the CLI uses, too.
  Status Join(absl::Duration limit) {
    if (access != nullptr) return absl::OkStatus();
    // The coordinator writes it when it starts.
    if (::access(options.token_file.c_str(), F_OK) != 0) {
      return absl::UnavailableError("the coordinator has not made its join token yet");
    }
    LH_ASSIGN_OR_RETURN(access, Access::Open(options, limit));
    stub = v1::ControlService::NewStub(access->Dial().channel);
    return absl::OkStatus();
  }
};

CoordinatorProbe::CoordinatorProbe(const ClusterState& state) : impl_(std::make_unique<Impl>()) {
  impl_->options = {.addresses = {state.coordinator_address},
                    .token_file = state.token_file,
                    .credentials_file = ClusterStateFolder(state.name) + "/user.pem",
                    .insecure = state.insecure,
                    .name = "local"};
}

CoordinatorProbe::~CoordinatorProbe() = default;

StatusOr<ConnectedWorkers> CoordinatorProbe::Connected(absl::Duration limit) {
  LH_RETURN_IF_ERROR(impl_->Join(std::max(limit, kJoinLimit)));
  grpc::ClientContext context;
  // It waits for a connection. A call that fails at once leaves nobody to drive the channel's next
  // attempt to connect: gRPC's sockets are polled by those who wait.
  impl_->access->Prepare(&context);
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
