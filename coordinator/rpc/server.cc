#include "coordinator/rpc/server.h"

#include <fmt/core.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <optional>
#include <utility>

#include "absl/time/clock.h"
#include "base/file.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/rpc/worker_service.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/prepare_data.h"
#include "coordinator/store/state_dir_lock.h"
#include "coordinator/store/store.h"
#include "proto/rpc/address.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/guarded_port.h"

namespace longhaul::coordinator {

// In the order of construction; destroyed the other way round.
struct CoordinatorServer::Impl {
  std::optional<StateDirLock> lock;
  std::unique_ptr<Store> store;
  std::unique_ptr<BlobStore> blobs;   // of users' data
  std::unique_ptr<BlobStore> copies;  // of checkpoint shards
  std::unique_ptr<Shell> shell;
  std::optional<GuardedPort> port;
  std::optional<WorkerServiceImpl> worker_service;
  std::optional<ControlServiceImpl> control_service;
  std::unique_ptr<grpc::Server> server;

  Status OpenState(const ServerOptions& options);
  Status Listen(const ServerOptions& options, const HostPort& wanted);
};

Status CoordinatorServer::Impl::OpenState(const ServerOptions& options) {
  const std::string& folder = options.state_dir;
  if (folder.empty()) return absl::InvalidArgumentError("the state directory has no name");
  LH_ASSIGN_OR_RETURN(lock, StateDirLock::Acquire(folder));
  LH_ASSIGN_OR_RETURN(store, Store::Open(folder));
  LH_ASSIGN_OR_RETURN(blobs, BlobStore::Open(folder + "/blobs"));
  LH_ASSIGN_OR_RETURN(copies, BlobStore::Open(folder + "/shard-copies"));
  LH_ASSIGN_OR_RETURN(DataPreparer preparer, DataPreparer::Open(folder + "/prepared", blobs.get()));
  StateOptions state = options.state;
  state.reach_secret = RandomBytes(32);
  LH_ASSIGN_OR_RETURN(shell, Shell::Create(state, store.get(), copies.get(), std::move(preparer)));
  return absl::OkStatus();
}

Status CoordinatorServer::Impl::Listen(const ServerOptions& options, const HostPort& wanted) {
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  port.emplace(options.token, &builder);
  worker_service.emplace(&*port, options.hello_timeout, shell.get(), blobs.get(), copies.get());
  control_service.emplace(&*port, options.state.version, shell.get(), blobs.get(), copies.get());
  builder.RegisterService(&*worker_service);
  builder.RegisterService(&*control_service);
  server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("gRPC could not start its server");
  LH_RETURN_IF_ERROR(Annotate(port->Open(ToString(wanted)), "--listen"));
  return Annotate(WriteFileAtomic(options.state_dir + "/address", port->address() + "\n"),
                  "state directory");
}

StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(options.listen));
  if (options.token.empty() && !IsLoopback(wanted.host)) {
    return absl::FailedPreconditionError(fmt::format(
        "listening on {} would let everybody on the network command the workers: give a token file "
        "with --token-file, or listen on 127.0.0.1",
        options.listen));
  }
  std::unique_ptr<CoordinatorServer> coordinator(new CoordinatorServer(std::make_unique<Impl>()));
  LH_RETURN_IF_ERROR(coordinator->impl_->OpenState(options));
  LH_RETURN_IF_ERROR(coordinator->impl_->Listen(options, wanted));
  return coordinator;
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorServer::~CoordinatorServer() {
  Stop(absl::Milliseconds(500));
}

const std::string& CoordinatorServer::address() const {
  return impl_->port->address();
}

Status CoordinatorServer::failure() const {
  return impl_->shell->failure();
}

bool CoordinatorServer::Stop(absl::Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  if (impl_->shell == nullptr) return true;
  // Half of the time is for streams to end with a sentence, before they are cut off.
  const bool idle = impl_->shell->Stop(Deadline::After(limit / 2));
  if (impl_->server != nullptr) {
    impl_->port->Close();
    impl_->server->Shutdown(absl::ToChronoTime(absl::Now() + deadline.Remaining()));
    impl_->server.reset();
  }
  return idle;
}

}  // namespace longhaul::coordinator
