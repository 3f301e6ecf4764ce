#include "coordinator/rpc/server.h"

#include <fmt/core.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "base/address.h"
#include "base/file.h"
#include "base/log.h"
#include "base/metrics/endpoint.h"
#include "base/token.h"
#include "coordinator/http/dashboard_server.h"
#include "coordinator/rpc/control_service.h"
#include "coordinator/rpc/gate.h"
#include "coordinator/rpc/member_service.h"
#include "coordinator/rpc/metrics_page.h"
#include "coordinator/rpc/own_blobs.h"
#include "coordinator/rpc/shell.h"
#include "coordinator/rpc/shell_source.h"
#include "coordinator/rpc/sign_object.h"
#include "coordinator/rpc/standby_service.h"
#include "coordinator/rpc/token_files.h"
#include "coordinator/rpc/worker_service.h"
#include "coordinator/standby/fencer.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/blob_index.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/blob_store.h"
#include "coordinator/store/disk_room.h"
#include "coordinator/store/members.h"
#include "coordinator/store/prepare_data.h"
#include "coordinator/store/state_dir_lock.h"
#include "coordinator/store/store.h"
#include "proto/rpc/channel.h"
#include "proto/rpc/guarded_port.h"
#include "transport/relay/relay.h"
#include "transport/relay/ticket.h"

namespace longhaul::coordinator {

// In the order of construction; destroyed the other way round.
struct CoordinatorServer::Impl {
  std::optional<StateDirLock> lock;
  std::unique_ptr<DiskRoom> room;
  std::unique_ptr<Store> store;
  std::unique_ptr<BlobStore> blobs;   // of users' data
  std::unique_ptr<BlobStore> copies;  // of checkpoint shards
  std::unique_ptr<BlobIndex> index;
  std::optional<BlobLists> lists;
  std::unique_ptr<Audit> audit;
  std::optional<Authorities> authorities;  // both: with TLS
  std::unique_ptr<Members> members;
  std::optional<Leadership> leadership;
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
  std::optional<FollowPort> follow_port;
  std::unique_ptr<grpc::Server> server;
  std::optional<ShellSource> source;  // both: with a dashboard
  std::shared_ptr<NewsForDashboard> dashboard;
  std::unique_ptr<metrics::Endpoint> metrics;
  std::optional<Fencer> fencer;

  Status Lead(const ServerOptions& options);
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

namespace {

// How long the standby of before is asked whether it has taken over.
constexpr absl::Duration kAskLimit = absl::Seconds(2);

std::vector<TokenFile> TokenFiles(const ServerOptions& options) {
  std::vector<TokenFile> files = {
      {.path = options.token_file.empty() ? options.state_dir + "/token" : options.token_file,
       .role = Role::kAdmin,
       .what = "the join token for admins"}};
  if (!options.worker_token_file.empty()) {
    files.push_back({.path = options.worker_token_file,
                     .role = Role::kWorker,
                     .what = "the join token for workers"});
  }
  return files;
}

// How often members that ended are forgotten and token files are looked at.
constexpr absl::Duration kUpkeepInterval = absl::Hours(1);

}  // namespace

Status CoordinatorServer::Impl::OpenStore(const ServerOptions& options) {
  if (options.state_dir.empty()) {
    return absl::InvalidArgumentError("the state directory has no name");
  }
  LH_ASSIGN_OR_RETURN(lock, StateDirLock::Acquire(options.state_dir));
  // Before anything is written: on a full disk the reserve makes room for a start.
  room = DiskRoom::Open(options.state_dir, options.disk);
  LH_ASSIGN_OR_RETURN(store, Store::Open(options.state_dir));
  LH_ASSIGN_OR_RETURN(audit, Audit::Open(options.state_dir, &store->journal()));
  return absl::OkStatus();
}

// The authority, its members, and a way to become the first of them.
StatusOr<std::vector<std::string>> CoordinatorServer::Impl::OpenMembers(
    const ServerOptions& options) {
  std::vector<std::string> made;
  bool new_authority = false;
  LH_ASSIGN_OR_RETURN(authorities,
                      LoadOrMakeAuthorities(options.state_dir, absl::Now(), &new_authority));
  LH_ASSIGN_OR_RETURN(members, Members::Open(options.state_dir, &store->journal()));
  if (new_authority) {
    made.push_back(fmt::format("made the certificate authority {}/authority.pem, fingerprint {}",
                               options.state_dir, authorities->present.fingerprint()));
  }
  LH_ASSIGN_OR_RETURN(const std::vector<std::string> kept, KeepUp(options));
  made.insert(made.end(), kept.begin(), kept.end());
  return made;
}

// Forgets members, and renews join tokens in files. Returns a sentence for each thing done.
StatusOr<std::vector<std::string>> CoordinatorServer::Impl::KeepUp(const ServerOptions& options) {
  const absl::Time now = absl::Now();
  std::vector<std::string> done;
  LH_ASSIGN_OR_RETURN(const size_t forgotten, members->Forget(now - options.members_kept));
  if (forgotten > 0) {
    done.push_back(fmt::format("{} members that ended more than {} ago are listed no longer",
                               forgotten, absl::FormatDuration(options.members_kept)));
  }
  for (const TokenFile& file : TokenFiles(options)) {
    LH_ASSIGN_OR_RETURN(const std::optional<std::string> provided,
                        ProvideToken(file, *authorities, members.get(), now));
    if (provided) done.push_back(*provided);
  }
  return done;
}

void CoordinatorServer::Impl::KeepUpLater(const ServerOptions& options) {
  absl::Duration wait = kUpkeepInterval;
  const absl::Time now = absl::Now();
  // Join tokens change with the authority that the port shows.
  if (authorities->IsRotating(now)) wait = std::min(wait, authorities->old_until - now);
  shell->CallAfter(wait, [this, options] {
    const StatusOr<std::vector<std::string>> done = KeepUp(options);
    if (!done.ok()) LogWarning("{}", Message(done.status()));
    if (done.ok()) {
      for (const std::string& sentence : *done) LogInfo("{}", sentence);
    }
    KeepUpLater(options);
  });
}

// Once the authority is there.
Status CoordinatorServer::Impl::Lead(const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(const LeadershipRecord was, ReadLeadership(options.state_dir));
  LH_ASSIGN_OR_RETURN(LeadershipRecord record, BeginToLead(was, options.claim, absl::Now()));
  if (!(record == was)) LH_RETURN_IF_ERROR(WriteLeadership(options.state_dir, record));
  if (options.claim != Claim::kOwn) {
    v1::AuditEntry entry;
    entry.set_action(options.claim == Claim::kTakeover ? "takeover" : "force");
    entry.set_object(record.predecessor);
    entry.set_outcome(fmt::format("term {}", record.term));
    audit->Record(std::move(entry));
  }
  leadership.emplace(options.state_dir, record);
  if (record.standby.empty() || !authorities) return absl::OkStatus();
  // It may have taken over while this one was away, and could not say so.
  const StatusOr<uint64_t> other =
      AskTerm(record.standby, authorities->Trusted(absl::Now()), kAskLimit);
  if (absl::IsFailedPrecondition(other.status())) return absl::OkStatus();
  if (other.ok()) {
    leadership->Yield(*other, record.standby);
    return leadership->failure();
  }
  if (record.standby_is_stale) return absl::OkStatus();
  return Unavailable(
      "the standby {} had all that this coordinator has, and may have taken over; it cannot be "
      "asked: {}. Start it, with --standby if it has not taken over, then this one; if it is gone "
      "for good, --force serves without it",
      record.standby, Message(other.status()));
}

StatusOr<std::vector<std::string>> InitState(const ServerOptions& options) {
  CoordinatorServer::Impl state;
  LH_RETURN_IF_ERROR(state.OpenStore(options));
  return state.OpenMembers(options);
}

StatusOr<std::vector<std::string>> RotateAuthority(const ServerOptions& options,
                                                   absl::Time old_until) {
  CoordinatorServer::Impl state;
  LH_RETURN_IF_ERROR(state.OpenStore(options));
  if (!std::filesystem::exists(options.state_dir + "/authority.pem")) {
    return FailedPrecondition("{} has no authority to rotate: `init` makes one", options.state_dir);
  }
  LH_ASSIGN_OR_RETURN(const LeadershipRecord record, ReadLeadership(options.state_dir));
  if (record.role != LeaderRole::kCoordinator) {
    return FailedPrecondition(
        "{} is not the state directory of the coordinator that serves; rotate there, and the "
        "standby gets the new authority from it",
        options.state_dir);
  }
  const absl::Time now = absl::Now();
  bool made = false;
  LH_ASSIGN_OR_RETURN(const Authorities before,
                      LoadOrMakeAuthorities(options.state_dir, now, &made));
  LH_ASSIGN_OR_RETURN(const Authorities after, Rotate(before, now, old_until));
  // First what ends: whoever reads the new authority must not count certificates of the old one.
  LH_ASSIGN_OR_RETURN(state.members, Members::Open(options.state_dir, &state.store->journal()));
  LH_RETURN_IF_ERROR(state.members->EndAllBy(std::max(now, old_until)));
  LH_RETURN_IF_ERROR(StoreAuthorities(options.state_dir, after));
  for (const TokenFile& file : TokenFiles(options)) {
    // Nobody takes a token of an authority that is forgotten for one of the new one.
    const StatusOr<std::string> text = ReadFile(file.path, kMaxTokenBytes);
    if (!after.old && text.ok() && IsJoinToken(*text)) std::filesystem::remove(file.path);
    LH_RETURN_IF_ERROR(ProvideToken(file, after, state.members.get(), now).status());
  }
  v1::AuditEntry entry;
  entry.set_action("rotate-authority");
  entry.set_object(after.present.fingerprint());
  entry.set_outcome("ok");
  state.audit->Record(std::move(entry));
  std::vector<std::string> said = {
      fmt::format("made a new authority, fingerprint {}", after.present.fingerprint())};
  said.push_back(
      after.old
          ? fmt::format("the one before counts until {}; members that connect until then learn the "
                        "new one, others have to join again after that",
                        absl::FormatTime(absl::RFC3339_sec, old_until, absl::UTCTimeZone()))
          : "the one before counts no longer: all members have to join again, with new tokens");
  said.push_back("start the coordinator; whoever joins later needs a token of then");
  return said;
}

StatusOr<std::optional<RelayOffer>> CoordinatorServer::Impl::OpenRelay(
    const ServerOptions& options) {
  if (options.relay.empty()) return std::optional<RelayOffer>();
  RelayOffer offer{.relay = {.name = "coordinator"}};
  LH_ASSIGN_OR_RETURN(offer.secret, relay::LoadOrMakeSecret(options.state_dir + "/relay-secret"));
  auto started =
      relay::Relay::Start({.listen = options.relay, .secret = offer.secret, .scoped = true});
  if (!started.ok()) return Annotate(started.status(), "--relay");
  relay = *std::move(started);
  offer.address = options.relay_advertise;
  if (offer.address.empty()) offer.address = relay->address().substr(relay->address().rfind(':'));
  LogInfo("relay at {}, reached at {}", relay->address(), offer.address);
  return std::optional(std::move(offer));
}

Status CoordinatorServer::Impl::OpenState(const ServerOptions& options) {
  const std::string& folder = options.state_dir;
  LH_RETURN_IF_ERROR(OpenStore(options));
  if (!options.insecure) {
    LH_ASSIGN_OR_RETURN(const std::vector<std::string> made, OpenMembers(options));
    for (const std::string& sentence : made) LogInfo("{}", sentence);
  }
  LH_RETURN_IF_ERROR(Lead(options));
  LH_ASSIGN_OR_RETURN(blobs, BlobStore::Open(folder + "/blobs"));
  LH_ASSIGN_OR_RETURN(copies, BlobStore::Open(folder + "/shard-copies"));
  LH_ASSIGN_OR_RETURN(index, BlobIndex::Open(folder));
  blobs->WhenRemoved([known = index.get()](const std::string& sha256) {
    const Status forgotten = known->Forget(sha256);
    if (!forgotten.ok()) LogWarning("the index of blobs: {}", Message(forgotten));
  });
  LH_ASSIGN_OR_RETURN(DataPreparer preparer, DataPreparer::Open(folder + "/prepared", blobs.get()));
  StateOptions state = options.state;
  state.reach_secret = RandomBytes(32);
  LH_ASSIGN_OR_RETURN(state.relay, OpenRelay(options));
  LH_ASSIGN_OR_RETURN(
      shell, Shell::Create(state, store.get(), blobs.get(), copies.get(), std::move(preparer),
                           /*planner=*/{}, folder + "/hooks", options.objects,
                           [this](std::vector<std::string> scopes) {
                             if (relay != nullptr) relay->Serve(std::move(scopes));
                           },
                           {.room = room.get(), .index = index.get()}));
  return absl::OkStatus();
}

Status CoordinatorServer::Impl::Listen(const ServerOptions& options, const HostPort& wanted) {
  grpc::ServerBuilder builder;
  ConfigureServer(&builder);
  PortSecurity security{.identity = std::nullopt, .token = options.token};
  std::string new_authority;
  if (const absl::Time now = absl::Now(); authorities) {
    LH_ASSIGN_OR_RETURN(security, SecurityOf(*authorities, now));
    if (authorities->IsRotating(now)) {
      new_authority = authorities->present.fingerprint();
      LogInfo("the authority's key is rotated: the old one counts until {}",
              absl::FormatTime(absl::RFC3339_sec, authorities->old_until, absl::UTCTimeZone()));
    }
    KeepUpLater(options);
  }
  port.emplace(security, &builder);
  lists.emplace(blobs.get(), index.get());
  gate.emplace(&*port, members.get(), shell.get(), &*lists, audit.get(), std::move(new_authority));
  own_blobs.emplace(shell.get(), &*lists, index.get(), room.get(), options.state.limits);
  signer.emplace(shell.get(), &*lists, options.objects, options.signing);
  worker_service.emplace(&*gate, options.hello_timeout, &*leadership, shell.get(), blobs.get(),
                         copies.get(), &*signer);
  control_service.emplace(&*gate, options.state.version, shell.get(), blobs.get(), copies.get(),
                          &*own_blobs);
  member_service.emplace(&*gate, authorities ? &*authorities : nullptr, members.get(), audit.get(),
                         options.certificate_lifetime);
  standby_service.emplace(&*gate, Followed{.shell = shell.get(),
                                           .store = store.get(),
                                           .blobs = blobs.get(),
                                           .copies = copies.get(),
                                           .leadership = &*leadership,
                                           .state_dir = options.state_dir,
                                           .version = options.state.version,
                                           .standby_is_stale = options.standby_is_stale});
  builder.RegisterService(&*worker_service);
  builder.RegisterService(&*control_service);
  builder.RegisterService(&*member_service);
  builder.RegisterService(&*standby_service);
  follow_port.emplace(&*standby_service, &builder,
                      [this](FollowCall* call) { standby_service->Accept(call); });
  server = builder.BuildAndStart();
  if (server == nullptr) return absl::InternalError("gRPC could not start its server");
  follow_port->Start();
  LH_RETURN_IF_ERROR(Annotate(port->Open(ToString(wanted)), "--listen"));
  return Annotate(WriteFileAtomic(options.state_dir + "/address", port->address() + "\n"),
                  "state directory");
}

Status CoordinatorServer::Impl::OpenDashboard(const ServerOptions& options) {
  if (options.http.empty()) return absl::OkStatus();
  source.emplace(shell.get());
  LH_ASSIGN_OR_RETURN(auto served, DashboardServer::Start({.listen = options.http,
                                                           .reports = options.reports,
                                                           .version = options.state.version},
                                                          &*source));
  dashboard = std::make_shared<NewsForDashboard>(std::move(served));
  shell->notifier().Add(dashboard);
  return absl::OkStatus();
}

Status CoordinatorServer::Impl::ServeMetrics(const ServerOptions& options) {
  if (options.metrics.empty()) return absl::OkStatus();
  const auto collect = [this, folder = options.state_dir, version = options.state.version] {
    return PageOf(Read(*shell, *leadership, folder, version));
  };
  LH_ASSIGN_OR_RETURN(metrics, metrics::Endpoint::Open(options.metrics, collect));
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<CoordinatorServer>> CoordinatorServer::Start(
    const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(const HostPort wanted, ParseHostPort(options.listen));
  if (options.insecure && options.token.empty() && !IsLoopback(wanted.host)) {
    return FailedPrecondition(
        "listening on {} with --insecure would let everybody on the network command the workers: "
        "leave --insecure out, or give a token file with --token-file, or listen on 127.0.0.1",
        options.listen);
  }
  std::unique_ptr<CoordinatorServer> coordinator(new CoordinatorServer(std::make_unique<Impl>()));
  LH_RETURN_IF_ERROR(coordinator->impl_->OpenState(options));
  // Before workers come: a port that cannot be had shall not cost them a connection.
  LH_RETURN_IF_ERROR(Annotate(coordinator->impl_->ServeMetrics(options), "--metrics"));
  LH_RETURN_IF_ERROR(coordinator->impl_->Listen(options, wanted));
  LH_RETURN_IF_ERROR(Annotate(coordinator->impl_->OpenDashboard(options), "--http"));
  if (!options.insecure) {
    CoordinatorServer::Impl& impl = *coordinator->impl_;
    impl.fencer.emplace(options.state_dir, impl.port->address(), *impl.authorities,
                        &*impl.leadership);
  }
  return coordinator;
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorServer::~CoordinatorServer() {
  Stop(absl::Milliseconds(500));
}

const std::string& CoordinatorServer::address() const {
  return impl_->port->address();
}

std::string CoordinatorServer::http_address() const {
  return impl_->dashboard == nullptr ? "" : impl_->dashboard->server().address();
}

Status CoordinatorServer::failure() const {
  LH_RETURN_IF_ERROR(impl_->leadership->failure());
  return impl_->shell->failure();
}

bool CoordinatorServer::Stop(absl::Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  impl_->metrics.reset();  // asks the shell
  if (impl_->shell == nullptr) return true;
  // Its streams begin to end while the shell does.
  if (impl_->dashboard != nullptr) impl_->dashboard->OnShutdown();
  // Half of the time is for streams to end with a sentence, before they are cut off.
  const bool signed_all = !impl_->signer || impl_->signer->Stop(Deadline::After(limit / 2));
  const bool idle = impl_->shell->Stop(Deadline::After(limit / 2)) && signed_all;
  if (impl_->server != nullptr) {
    impl_->port->Close();
    impl_->server->Shutdown(absl::ToChronoTime(absl::Now() + deadline.Remaining()));
    impl_->follow_port->Stop();
    impl_->server.reset();
  }
  const bool unwatched = impl_->dashboard == nullptr || impl_->dashboard->server().Stop(deadline);
  return idle && unwatched;
}

}  // namespace longhaul::coordinator
