// The parts of a coordinator that serves (server.h), for the files that put them together.
#pragma once

#include <grpcpp/server.h>
#include <grpcpp/server_context.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/file.h"
#include "base/metrics/endpoint.h"
#include "coordinator/http/dashboard_server.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/dashboard_changes.h"
#include "coordinator/rpc/dashboard_keys.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/member_service.h"
#include "coordinator/rpc/observe_service.h"
#include "coordinator/rpc/own_blobs.h"
#include "coordinator/rpc/server.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/rpc/shell_source.h"
#include "coordinator/rpc/sign_object.h"
#include "coordinator/rpc/standby_service.h"
#include "coordinator/rpc/worker_pages.h"
#include "coordinator/rpc/worker_service.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/standby/seat_lines.h"
#include "coordinator/standby/voting.h"
#include "coordinator/standby/witness_lines.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/blob_index.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/blob_scrub.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/disk_room.h"
#include "coordinator/store/members.h"
#include "coordinator/store/state_dir_lock.h"
#include "coordinator/store/store.h"
#include "coordinator/store/store_check.h"
#include "proto/rpc/guarded_port.h"
#include "transport/relay/relay.h"

namespace longhaul::coordinator {

// In the order of construction; destroyed the other way round.
struct CoordinatorServer::Impl {
  std::optional<StateDirLock> lock;
  std::unique_ptr<DiskRoom> room;
  std::unique_ptr<Store> store;
  std::unique_ptr<Leadership> leadership;  // every change of the store asks it
  std::unique_ptr<BlobStore> blobs;        // of users' data
  std::unique_ptr<BlobStore> copies;       // of checkpoint shards
  std::unique_ptr<BlobIndex> index;
  std::optional<BlobScrub> scrub;
  std::optional<StoreCheck> store_check;
  std::optional<BlobLists> lists;
  std::unique_ptr<Audit> audit;
  std::optional<Authorities> authorities;  // both: with TLS
  std::unique_ptr<Members> members;
  std::unique_ptr<Voting> voting;
  std::unique_ptr<relay::Relay> relay;
  std::unique_ptr<Shell> shell;
  std::optional<GuardedPort> port;
  std::optional<Gate> gate;
  std::optional<OwnBlobs> own_blobs;
  std::optional<ObjectSigner> signer;
  std::optional<WorkerServiceImpl> worker_service;
  std::optional<ControlServiceImpl> control_service;
  std::optional<MemberServiceImpl> member_service;
  std::optional<StandbyServiceImpl> standby_service;
  // Keys end with the process, so nothing on the disk makes one.
  const DashboardKeys dashboard_keys{RandomBytes(32)};
  WorkerPages worker_pages;
  std::optional<ObserveServiceImpl> observe_service;
  std::optional<FollowPort> follow_port;
  std::optional<WitnessLines> witness_lines;  // both: with TLS
  std::optional<SeatLines> seat_lines;
  std::unique_ptr<grpc::Server> server;
  std::optional<ShellSource> source;  // all three: with a dashboard
  std::optional<DashboardChanges> changes;
  std::shared_ptr<NewsForDashboard> dashboard;
  std::unique_ptr<metrics::Endpoint> metrics;

  ~Impl() {
    // Its thread uses what is destroyed before it.
    if (leadership != nullptr) leadership->Close(absl::ZeroDuration());
  }

  Status Lead(const ServerOptions& options);
  Status StartLeading(const ServerOptions& options);
  // Admits a caller of one of the calls that must not wait for the store. Returns its name.
  StatusOr<std::string> AdmitSeat(grpc::ServerContext& context, Call call);
  SeatLines::Handler SeatCalls();
  StatusOr<v1::LeadReply> LeadAs(const v1::LeadRequest& request);
  // What calls and metrics say of who leads. Any thread.
  v1::LeadershipInfo Leads() const;
  Status OpenStore(const ServerOptions& options);
  StatusOr<std::vector<std::string>> OpenMembers(const ServerOptions& options);
  StatusOr<std::vector<std::string>> KeepUp(const ServerOptions& options);
  void KeepUpLater(const ServerOptions& options);
  StatusOr<std::optional<RelayOffer>> OpenRelay(const ServerOptions& options);
  Status OpenState(const ServerOptions& options);
  Status Listen(const ServerOptions& options, const HostPort& wanted);
  Status OpenDashboard(const ServerOptions& options);
  Status ServeMetrics(const ServerOptions& options);
};

}  // namespace longhaul::coordinator
