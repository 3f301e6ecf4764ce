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
#include "base/disk_call.h"
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
#include "coordinator/standby/ask_term.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/standby/voting.h"
#include "coordinator/standby/witness_lines.h"
#include "coordinator/store/audit.h"
#include "coordinator/store/blob_index.h"
#include "coordinator/store/blob_lists.h"
#include "coordinator/store/blob_scrub.h"
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
  std::unique_ptr<Leadership> leadership;  // every change of the store asks it
  std::unique_ptr<BlobStore> blobs;        // of users' data
  std::unique_ptr<BlobStore> copies;       // of checkpoint shards
  std::unique_ptr<BlobIndex> index;
  std::optional<BlobScrub> scrub;
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
  std::optional<FollowPort> follow_port;
  std::optional<WitnessLines> witness_lines;
  std::unique_ptr<grpc::Server> server;
  std::optional<ShellSource> source;  // both: with a dashboard
  std::shared_ptr<NewsForDashboard> dashboard;
  std::unique_ptr<metrics::Endpoint> metrics;

  ~Impl() {
    // Its thread uses what is destroyed before it.
    if (leadership != nullptr) leadership->Close(absl::ZeroDuration());
  }

  Status Lead(const ServerOptions& options);
  Status StartLeading(const ServerOptions& options);
  StatusOr<std::string> AdmitWitness(grpc::ServerContext& context);
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

namespace {

// How long another coordinator is asked for its term.
constexpr absl::Duration kAskLimit = absl::Seconds(2);

// Why a state directory does not lead by itself.
Status MayNotLead(const LeadershipRecord& record, const std::string& state_dir) {
  const std::string peer = record.peer.empty() ? "HOST:PORT of the other one" : record.peer;
  if (record.role == LeaderRole::kFenced) {
    return FailedPrecondition(
        "another coordinator leads: {} (term {}). The records in {} are older. Start this one with "
        "--standby {}, and it follows that one; --force lets it serve with what it has, when the "
        "other is gone for good",
        peer, record.term(), state_dir, peer);
  }
  if (record.role == LeaderRole::kStandby) {
    return FailedPrecondition(
        "{} is the state directory of a standby of {}. Start it with --standby {}, and it follows "
        "that one; --force serves now with what it has",
        state_dir, peer, peer);
  }
  return FailedPrecondition(
      "the coordinator {} may have been elected, because it has all changes of {}. Start this one "
      "with --peer {}, and it asks the witness; --force serves without asking, when the other is "
      "gone for good",
      peer, state_dir, peer);
}

// Changes that only one of two coordinators in sync has are lost when the other one leads.
Status CheckAlone(const std::string& state_dir) {
  LH_ASSIGN_OR_RETURN(const LeadershipRecord record, ReadLeadership(state_dir));
  if (record.leads_alone()) return absl::OkStatus();
  return FailedPrecondition(
      "{} is not the state directory of a coordinator that leads alone, and what is changed here "
      "would be lost when the other one leads; make the change where the coordinator leads, after "
      "the other one was stopped for some seconds",
      state_dir);
}

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
// A disk call that takes so long is told of to whoever asks who leads.
constexpr absl::Duration kSlowDisk = absl::Seconds(1);

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

// Begins a term. Nothing is written to the store before.
Status CoordinatorServer::Impl::Lead(const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(LeadershipRecord record, ReadLeadership(options.state_dir));
  if (!options.peer.empty()) record.peer = options.peer;
  const Standing standing = store->journal().standing();
  Seat seat = options.elected ? *options.elected : Seat(record.seat);
  seat.SetStore(standing.applied, standing.tail);
  const bool forced = !options.elected && options.claim == Claim::kForce && !record.leads_alone();
  if (forced) {
    seat.Force(NewTenure(), TermOfForce(record.term(), absl::Now()));
  } else if (!options.elected) {
    if (!record.leads_alone()) return MayNotLead(record, options.state_dir);
    seat.LeadAlone(NewTenure(), standing.logged().term);
  }
  LH_ASSIGN_OR_RETURN(leadership,
                      Leadership::Begin(options.state_dir, std::move(record), std::move(seat)));
  store->journal().SetReplicator(leadership.get());
  LH_RETURN_IF_ERROR(store->BeginTerm({.tenure = leadership->tenure().value(),
                                       .seat = leadership->record().seat.seat,
                                       .address = options.listen}));
  // Not before: the tail, which is applied now, may have entries.
  LH_ASSIGN_OR_RETURN(audit, Audit::Open(options.state_dir, &store->journal()));
  LH_ASSIGN_OR_RETURN(voting, Voting::Open(options.state_dir, &store->journal()));
  if (forced) {
    // It may have elected the other coordinator, and would refuse this one for ever.
    LH_RETURN_IF_ERROR(voting->Set({}));
    LogWarning("no witness counts any more; begin one with an empty state directory");
  }
  if (forced || options.elected) {
    v1::AuditEntry entry;
    entry.set_action(forced ? "force" : "takeover");
    entry.set_object(leadership->record().peer);
    entry.set_outcome(fmt::format("term {}", leadership->term()));
    audit->Record(std::move(entry));
  }
  return absl::OkStatus();
}

StatusOr<std::string> CoordinatorServer::Impl::AdmitWitness(grpc::ServerContext& context) {
  LH_ASSIGN_OR_RETURN(const Caller caller, port->Identify(context));
  if (!caller.member) return absl::FailedPreconditionError("a witness needs TLS");
  LH_RETURN_IF_ERROR(CheckRole(caller, Call::kWitness));
  LH_RETURN_IF_ERROR(gate->StillMember(caller));
  port->LetIn(context, caller);
  return caller.member->name;
}

Status CoordinatorServer::Impl::StartLeading(const ServerOptions& options) {
  LH_ASSIGN_OR_RETURN(VotingWitness witness, ReadVoting(options.state_dir));
  Leadership::Hooks hooks{
      .ask_witness =
          [this](const witness::Request& request) {
            return witness_lines && witness_lines->Ask(request);
          },
      .set_witness = [this](const VotingWitness& named) { return voting->Set(named); },
      .is_member =
          [this](const std::string& name) {
            if (members == nullptr) return true;
            return std::ranges::any_of(members->List(), [&](const v1::MemberStatus& member) {
              return member.name() == name && member.revoked_unix_ms() == 0;
            });
          },
      .ask_term = [this](const std::string& address) -> std::optional<uint64_t> {
        if (!authorities) return std::nullopt;
        const StatusOr<uint64_t> term =
            AskTerm(address, authorities->Trusted(absl::Now()), kAskLimit);
        return term.ok() ? std::optional(*term) : std::nullopt;
      },
      .address = port->address(),
      .on_sure = [this](const Status& sure) { shell->SetSure(sure); }};
  if (witness.id.empty() && !leadership->record().peer.empty()) {
    LogWarning(
        "there is no witness, so {} never takes over by itself; start one: longhaul-coordinator "
        "witness, or longhaul-worker --witness",
        leadership->record().peer);
  }
  leadership->Start(std::move(hooks), std::move(witness));
  return absl::OkStatus();
}

v1::LeadershipInfo CoordinatorServer::Impl::Leads() const {
  v1::LeadershipInfo info = leadership->Info();
  info.set_unstored(shell->unstored_for().has_value());
  const std::optional<DiskCallNow> call = LongestShortDiskCall();
  if (call && Now() - call->since >= kSlowDisk) {
    info.set_notes(
        fmt::format("{}{}{} has taken {} so far: the disk does not answer", info.notes(),
                    info.notes().empty() ? "" : "\n", call->what,
                    absl::FormatDuration(absl::Trunc(Now() - call->since, absl::Seconds(1)))));
  }
  if (port) info.set_address(port->address());
  return info;
}

StatusOr<std::vector<std::string>> InitState(const ServerOptions& options) {
  CoordinatorServer::Impl state;
  LH_RETURN_IF_ERROR(state.OpenStore(options));
  LH_RETURN_IF_ERROR(CheckAlone(options.state_dir));
  return state.OpenMembers(options);
}

StatusOr<std::vector<std::string>> RotateAuthority(const ServerOptions& options,
                                                   absl::Time old_until) {
  CoordinatorServer::Impl state;
  LH_RETURN_IF_ERROR(state.OpenStore(options));
  if (!std::filesystem::exists(options.state_dir + "/authority.pem")) {
    return FailedPrecondition("{} has no authority to rotate: `init` makes one", options.state_dir);
  }
  LH_RETURN_IF_ERROR(CheckAlone(options.state_dir));
  LH_ASSIGN_OR_RETURN(state.audit, Audit::Open(options.state_dir, &state.store->journal()));
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
  builder.RegisterService(&*standby_service);
  follow_port.emplace(&*standby_service, &builder,
                      [this](FollowCall* call) { standby_service->Accept(call); });
  if (authorities) {
    witness_lines.emplace(
        [this](grpc::ServerContext& context) { return AdmitWitness(context); },
        WitnessLines::Handler{.on_hello =
                                  [this](const std::string& name, const witness::Record& record) {
                                    return leadership->OnWitnessHello(name, record);
                                  },
                              .on_answer =
                                  [this](const v1::WitnessSays::Answer& answer) {
                                    leadership->OnWitnessAnswer(answer);
                                  }});
    witness_lines->Register(&builder);
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
    return PageOf(Read(
        *shell, [this] { return Leads(); }, folder, version));
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

std::string CoordinatorServer::http_address() const {
  return impl_->dashboard == nullptr ? "" : impl_->dashboard->server().address();
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
