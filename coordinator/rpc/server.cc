#include "coordinator/rpc/server.h"

#include <fmt/core.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <unistd.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "base/address.h"
#include "base/file.h"
#include "base/log.h"
#include "coordinator/rpc/metrics_page.h"
#include "coordinator/rpc/server_parts.h"
#include "coordinator/store/prepare_data.h"
#include "proto/rpc/channel.h"
#include "transport/relay/ticket.h"

namespace longhaul::coordinator {
namespace {

// Returns the name of this machine, as its users know it; "": it has none.
std::string NameOfHost() {
  char name[256] = "";
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

std::string DashboardUrl(const DashboardServer& server) {
  return fmt::format("{}://{}/", server.encrypted() ? "https" : "http", server.address());
}

}  // namespace

Status CoordinatorServer::Impl::OpenStore(const ServerOptions& options) {
  if (options.state_dir.empty()) {
    return absl::InvalidArgumentError("the state directory has no name");
  }
  LH_ASSIGN_OR_RETURN(lock, StateDirLock::Acquire(options.state_dir));
  // Before anything is written: on a full disk the reserve makes room for a start.
  room = DiskRoom::Open(options.state_dir, options.disk);
  LH_ASSIGN_OR_RETURN(store, Store::Open(options.state_dir));
  store->journal().WhenRefused([reserve = room.get()] {
    reserve->GiveUp();
    reserve->Check();
  });
  return absl::OkStatus();
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
  LH_RETURN_IF_ERROR(Lead(options));
  if (!options.insecure) {
    LH_ASSIGN_OR_RETURN(const std::vector<std::string> made, OpenMembers(options));
    for (const std::string& sentence : made) LogInfo("{}", sentence);
  }
  LH_ASSIGN_OR_RETURN(blobs, BlobStore::Open(folder + "/blobs"));
  LH_ASSIGN_OR_RETURN(copies, BlobStore::Open(folder + "/shard-copies"));
  LH_ASSIGN_OR_RETURN(index, BlobIndex::Open(folder));
  blobs->WhenRemoved([known = index.get()](const std::string& sha256) {
    const Status forgotten = known->Forget(sha256);
    if (!forgotten.ok()) LogWarning("the index of blobs: {}", Message(forgotten));
  });
  scrub.emplace(std::vector<const BlobStore*>{blobs.get(), copies.get()}, options.scrub);
  store_check.emplace(folder + "/store.db", options.store_check);
  LH_ASSIGN_OR_RETURN(DataPreparer preparer, DataPreparer::Open(folder + "/prepared", blobs.get()));
  StateOptions state = options.state;
  state.reach_secret = RandomBytes(32);
  state.lead = {.term = leadership->term(), .tenure = leadership->tenure()};
  state.newest_change = store->journal().committed().number;
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
  worker_service.emplace(&*gate, options.hello_timeout, leadership.get(), shell.get(), blobs.get(),
                         copies.get(), &*signer);
  control_service.emplace(&*gate, options.state.version, shell.get(), blobs.get(), copies.get(),
                          &*own_blobs, [this] { return Leads(); });
  member_service.emplace(&*gate, authorities ? &*authorities : nullptr, members.get(), audit.get(),
                         options.certificate_lifetime);
  standby_service.emplace(&*gate, Followed{.shell = shell.get(),
                                           .store = store.get(),
                                           .blobs = blobs.get(),
                                           .copies = copies.get(),
                                           .leadership = leadership.get(),
                                           .state_dir = options.state_dir,
                                           .version = options.state.version});
  builder.RegisterService(&*worker_service);
  builder.RegisterService(&*control_service);
  builder.RegisterService(&*member_service);
  observe_service.emplace(&*gate, &dashboard_keys,
                          options.metrics.address.empty() ? nullptr : &worker_pages);
  builder.RegisterService(&*standby_service);
  builder.RegisterService(&*observe_service);
  follow_port.emplace(&*standby_service, &builder,
                      [this](FollowCall* call) { standby_service->Accept(call); });
  if (authorities) {
    witness_lines.emplace(
        [this](grpc::ServerContext& context) { return AdmitSeat(context, Call::kWitness); },
        WitnessLines::Handler{.on_hello =
                                  [this](const std::string& name, const witness::Record& record) {
                                    return leadership->OnWitnessHello(name, record);
                                  },
                              .on_answer =
                                  [this](const v1::WitnessSays::Answer& answer) {
                                    leadership->OnWitnessAnswer(answer);
                                  }});
    witness_lines->Register(&builder);
    seat_lines.emplace(SeatCalls());
    seat_lines->Register(&builder);
  }
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
  changes.emplace(&dashboard_keys, &*gate, shell.get(), blobs.get(), &*own_blobs,
                  /*with_members=*/!options.insecure);
  // Admins' tokens are good for workers, too.
  const std::string token_file = !options.token_file.empty() || options.insecure
                                     ? options.token_file
                                     : options.state_dir + "/token";
  std::error_code ignored;
  const std::string token_path =
      token_file.empty() ? "" : std::filesystem::absolute(token_file, ignored).string();
  LH_ASSIGN_OR_RETURN(auto served,
                      DashboardServer::Start({.listen = options.http,
                                              .reports = options.reports,
                                              .version = options.state.version,
                                              .certificate_file = options.http_certificate,
                                              .key_file = options.http_key,
                                              .joining = {.address = port->address(),
                                                          .host = NameOfHost(),
                                                          .token_file = token_path,
                                                          .insecure = options.insecure}},
                                             &*source, &*changes));
  dashboard = std::make_shared<NewsForDashboard>(std::move(served));
  observe_service->SetDashboard(DashboardUrl(dashboard->server()));
  shell->notifier().Add(dashboard);
  return absl::OkStatus();
}

Status CoordinatorServer::Impl::ServeMetrics(const ServerOptions& options) {
  if (options.metrics.address.empty()) return absl::OkStatus();
  const auto collect = [this, folder = options.state_dir, version = options.state.version] {
    metrics::Page page = PageOf(Read(
        *shell, [this] { return Leads(); }, folder, version));
    worker_pages.AddTo(&page, Now());
    return page;
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
  LH_RETURN_IF_ERROR(coordinator->impl_->StartLeading(options));
  LH_RETURN_IF_ERROR(Annotate(coordinator->impl_->OpenDashboard(options), "--http"));
  return coordinator;
}

CoordinatorServer::CoordinatorServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

CoordinatorServer::~CoordinatorServer() {
  Stop(absl::Milliseconds(500));
}

const std::string& CoordinatorServer::address() const {
  return impl_->port->address();
}

std::string CoordinatorServer::dashboard_url() const {
  return impl_->dashboard == nullptr ? "" : DashboardUrl(impl_->dashboard->server());
}

Status CoordinatorServer::failure() const {
  LH_RETURN_IF_ERROR(impl_->leadership->failure());
  LH_RETURN_IF_ERROR(impl_->store->journal().failure());
  return impl_->shell->failure();
}

bool CoordinatorServer::stepped_down() const {
  return absl::IsFailedPrecondition(impl_->leadership->failure());
}

bool CoordinatorServer::begins_anew() const {
  return impl_->leadership->begins_anew();
}

bool CoordinatorServer::Stop(absl::Duration limit) {
  const Deadline deadline = Deadline::After(limit);
  impl_->metrics.reset();  // asks the shell
  // The shell may be waiting for the other coordinator.
  if (impl_->leadership != nullptr) impl_->leadership->Close(limit / 4);
  if (impl_->store != nullptr) impl_->store->journal().Close();
  if (impl_->shell == nullptr) return true;
  // Its streams begin to end while the shell does.
  if (impl_->dashboard != nullptr) impl_->dashboard->OnShutdown();
  // Half of the time is for streams to end with a sentence, before they are cut off.
  const bool signed_all = !impl_->signer || impl_->signer->Stop(Deadline::After(limit / 2));
  const bool idle = impl_->shell->Stop(Deadline::After(limit / 2)) && signed_all;
  if (impl_->server != nullptr) {
    impl_->port->Close();
    if (impl_->witness_lines) impl_->witness_lines->Close();
    impl_->server->Shutdown(absl::ToChronoTime(absl::Now() + deadline.Remaining()));
    impl_->follow_port->Stop();
    impl_->server.reset();
  }
  const bool unwatched = impl_->dashboard == nullptr || impl_->dashboard->server().Stop(deadline);
  return idle && unwatched;
}

}  // namespace longhaul::coordinator
