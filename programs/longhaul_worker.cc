// longhaul-worker: one cell of a run at a time, for its coordinator.
#include <fmt/core.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "base/address.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/metrics/endpoint.h"
#include "base/peer_log.h"
#include "base/private_files.h"
#include "base/remote/settings.h"
#include "base/root_folders.h"
#include "base/shutdown.h"
#include "base/status.h"
#include "base/version.h"
#include "base/watchdog.h"
#include "codec/python/host.h"
#include "deploy/python_program.h"
#include "programs/longhaul_worker_flags.h"
#include "proto/member/access.h"
#include "proto/rpc/channel.h"
#include "proto/witness/hosted.h"
#include "transport/p2p/registry/registry.h"
#include "transport/relay/relay.h"
#include "transport/relay/ticket.h"
#include "worker/agent/agent.h"
#include "worker/agent/endpoints.h"
#include "worker/agent/leave.h"
#include "worker/agent/session.h"
#include "worker/agent/state_dir.h"
#include "worker/agent/term_file.h"
#include "worker/epoch/metrics_courier.h"
#include "worker/epoch/remote_objects.h"
#include "worker/epoch/restart.h"
#include "worker/epoch/stored_objects.h"
#include "worker/epoch/worker_metrics.h"
#include "worker/measuring/device.h"
#include "worker/ranks/communicators.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

constexpr uint32_t kProtocolMin = 9;
constexpr uint32_t kProtocolMax = 9;
constexpr absl::Duration kFailureCheck = absl::Milliseconds(500);
// The same of a worker that is leaving.
constexpr absl::Duration kLeaveCheck = absl::Milliseconds(20);
// A worker that is leaving and has had no coordinator for so long goes: nobody can take its place.
constexpr absl::Duration kAloneLimit = absl::Milliseconds(500);
// How long a process that restarts itself waits for its last reports. The next process repeats what
// did not arrive.
constexpr absl::Duration kLastWordsLimit = absl::Seconds(1);
constexpr absl::Duration kJoinLimit = absl::Seconds(5);
// Between two tries to get a new certificate.
constexpr absl::Duration kRenewPause = absl::Seconds(10);

int Fail(const Status& status) {
  fmt::print(stderr, "longhaul-worker: {}\n", Message(status));
  return kFailed;
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

using Transports = std::map<std::string, std::unique_ptr<transport::Transport>, std::less<>>;

StatusOr<Transports> Listen(const WorkerFlags& flags,
                            const std::function<std::string()>& coordinator) {
  Transports transports;
  for (const TransportTraits& one : kTransports) {
    // Every worker has those that listen nowhere.
    if (one.listens && !Has(flags, one.name)) continue;
    LH_ASSIGN_OR_RETURN(
        std::unique_ptr<transport::Transport> transport,
        transport::CreateTransport(one.kind, {.bind_address = AddressOf(flags, one),
                                              .network_device = flags.data_interface,
                                              .coordinator = coordinator}));
    if (one.listens) LogInfo("data address {} ({})", transport->address(), one.name);
    transports.emplace(one.name, std::move(transport));
  }
  return transports;
}

// The advertised address replaces that of a transport that passes port mapping; without such a
// transport it is another name of the data address.
Endpoints EndpointsOf(const WorkerFlags& flags, const Transports& transports,
                      const std::function<std::string()>& coordinator) {
  std::map<std::string, std::string> listening;
  for (const auto& [name, transport] : transports) listening[name] = transport->address();
  const TransportTraits* const reached_elsewhere = FirstToFaceStrangers(flags);
  return Endpoints(listening,
                   reached_elsewhere != nullptr ? std::string(reached_elsewhere->name)
                                                : flags.transports.front(),
                   flags.advertise, coordinator);
}

// Whether the relay, which listens at all addresses, is reached at the one that this machine has
// towards the coordinator.
bool AtOwnAddress(const WorkerFlags& flags, const HostPort& relay) {
  return flags.relay_advertise.empty() && (relay.host == "0.0.0.0" || relay.host == "::");
}

// Carries links between others. Null: it was not asked for.
StatusOr<std::unique_ptr<relay::Relay>> StartRelay(const WorkerFlags& flags,
                                                   v1::RelayOffer* offer) {
  if (flags.relay.empty()) return std::unique_ptr<relay::Relay>();
  LH_ASSIGN_OR_RETURN(const std::string secret,
                      relay::LoadOrMakeSecret(flags.state_dir + "/relay-secret"));
  StatusOr<std::unique_ptr<relay::Relay>> relay =
      relay::Relay::Start({.listen = flags.relay, .secret = secret, .scoped = true});
  if (!relay.ok()) return Annotate(relay.status(), "--relay");
  LH_ASSIGN_OR_RETURN(HostPort address, ParseHostPort((*relay)->address()));
  if (AtOwnAddress(flags, address)) address.host = OwnAddressTowards(flags.coordinators);
  if (address.host.empty()) {
    return Unavailable(
        "there is no way to the coordinator {}, so the address at which others reach the relay is "
        "not known; look at its name and the network, or say it with --relay-advertise",
        absl::StrJoin(flags.coordinators, ", "));
  }
  offer->set_address(flags.relay_advertise.empty() ? ToString(address) : flags.relay_advertise);
  offer->set_secret(secret);
  LogInfo("relay at {}, reached at {}", (*relay)->address(), offer->address());
  return relay;
}

// With several coordinators, this machine may have a different address towards each.
void FollowOwnAddress(const WorkerFlags& flags, const relay::Relay* relay, const std::string& own,
                      v1::Hello* hello) {
  if (relay == nullptr || own.empty() || flags.coordinators.size() == 1) return;
  StatusOr<HostPort> address = ParseHostPort(relay->address());
  if (!address.ok() || !AtOwnAddress(flags, *address)) return;
  address->host = own;
  hello->mutable_relay()->set_address(ToString(*address));
}

StatusOr<std::unique_ptr<Stage>> MakeStage(const StageOptions& options,
                                           const std::string& state_dir) {
  if (options.ranks.size() < 2) return Stage::Create(options);
  return MakeGroupStage(options, CommunicatorsFor(options, state_dir));
}

// Signs with this member's key. What cannot be signed goes without, and the coordinator says so.
SignDigests SignerOf(const std::shared_ptr<Access>& access) {
  return [access](std::string_view body) {
    const StatusOr<std::string> signature = access->SignDigests(body);
    if (!signature.ok()) LogWarning("digests are not signed: {}", Message(signature.status()));
    return signature.value_or("");
  };
}

// What reads models and data sets at addresses. Their authors are strangers: without
// --remote-credentials it has no credentials.
StatusOr<std::unique_ptr<RemoteObjects>> OpenObjects(const WorkerFlags& flags,
                                                     const std::shared_ptr<Access>& access) {
  const remote::Environment own = remote::ProcessEnvironment();
  LH_ASSIGN_OR_RETURN(
      const remote::Settings settings,
      remote::FindSettings(flags.remote_credentials ? own : remote::WithoutCredentials(own)));
  http::HostRules hosts = remote::RulesFor(settings.endpoints);
  for (const std::string& host : flags.remote_hosts) hosts.Allow(host);
  for (const std::string& text : flags.remote_networks) {
    LH_ASSIGN_OR_RETURN(const http::IpNetwork network, http::ParseIpNetwork(text));
    hosts.networks.push_back(network);
  }
  return std::make_unique<RemoteObjects>(
      settings, std::move(hosts),
      flags.remote_credentials ? nullptr : std::make_shared<ObjectSigner>(access));
}

// What runs codecs that are classes of Python. Null: the flags permit none.
StatusOr<std::unique_ptr<codec::python::Host>> OpenPythonCodecs(const WorkerFlags& flags) {
  if (flags.python_codecs.empty()) return std::unique_ptr<codec::python::Host>();
  LH_ASSIGN_OR_RETURN(const PythonProgram program, FindPythonProgram(PythonCodecPart()));
  return std::make_unique<codec::python::Host>(codec::python::HostOptions{
      .modules = flags.python_codecs, .python = program.python, .main = program.main});
}

// Joins where there is no certificate yet, as soon as the coordinator answers. Null: a signal came.
StatusOr<std::shared_ptr<Access>> OpenAccess(const WorkerFlags& flags,
                                             const std::string& worker_id) {
  const AccessOptions options{.addresses = flags.coordinators,
                              .token_file = flags.token_file,
                              .credentials_file = flags.state_dir + "/identity.pem",
                              .insecure = flags.insecure,
                              .role = Role::kWorker,
                              .name = flags.name.empty() ? HostName() : flags.name,
                              .worker_id = worker_id};
  if (flags.insecure) {
    LogWarning("INSECURE: this worker talks with its coordinator without encryption (--insecure)");
  }
  std::string last_failure;
  while (true) {
    StatusOr<std::shared_ptr<Access>> access = Access::Open(options, kJoinLimit);
    if (!absl::IsUnavailable(access.status())) return access;
    if (last_failure != Message(access.status())) {
      last_failure = Message(access.status());
      if (flags.coordinators.size() == 1) {
        LogWarning("coordinator {}: {}; dialling again", flags.coordinators[0], last_failure);
      } else {
        LogWarning("no coordinator serves: {}; dialling again", last_failure);
      }
    }
    if (WaitForShutdownSignal(kFailureCheck) != 0) return std::shared_ptr<Access>();
  }
}

// Serves until a signal ends the worker, which it returns, or the coordinator refuses it for good.
// After the first SIGTERM a run may take the worker's state elsewhere before.
int AwaitEnd(const WorkerFlags& flags, Access& access, Session& session, Leave& leave) {
  MonoTime connected = Now();
  int signal = 0;
  while (session.fatal().ok()) {
    const int got = WaitForShutdownSignal(leave.HasBegun() ? kLeaveCheck : kFailureCheck);
    if (session.IsConnected()) connected = Now();
    if (got == SIGTERM && !leave.HasBegun() && flags.leave_within_seconds > 0 &&
        session.IsConnected()) {
      signal = got;
      leave.Begin(absl::Seconds(flags.leave_within_seconds), "it was told to end (SIGTERM)");
      session.Send(leave.Word());
      LogInfo("signal {}: leaving, within {:g} s; a second signal ends this worker at once", got,
              flags.leave_within_seconds);
      continue;
    }
    if (got != 0) return got;
    if (leave.IsOver()) break;
    if (leave.HasBegun() && Now() - connected > kAloneLimit) break;
    LogWhatWasLeftOut();
    if (const Status renewed = access.RenewIfDue(kRenewPause); !renewed.ok()) {
      LogWarning("{}", Message(renewed));
    }
  }
  if (leave.HasBegun() && !leave.IsAllowed()) {
    v1::WorkerMessage last = leave.Word();
    last.mutable_leaving()->set_seconds(0);
    session.Send(std::move(last));
    session.AwaitSent(kLastWordsLimit);
  }
  return signal;
}

int Serve(const WorkerFlags& flags, std::vector<WorkerDevice> devices, char** arguments,
          const RestartCause& restarted_for) {
  const Watchdog watchdog;
  const StatusOr<StateDir> state_dir = StateDir::Open(flags.state_dir);
  if (!state_dir.ok()) return Fail(state_dir.status());
  // Now, because it may have to wait for a coordinator.
  NotifySystemd("READY=1");
  const StatusOr<TermFile> terms = TermFile::Open(flags.state_dir);
  if (!terms.ok()) return Fail(terms.status());
  const StatusOr<std::shared_ptr<Access>> opened = OpenAccess(flags, state_dir->worker_id());
  if (!opened.ok()) return Fail(opened.status());
  const std::shared_ptr<Access>& access = *opened;
  if (access == nullptr) return kOk;
  const auto coordinator = [access] { return access->address(); };
  auto shards = ShardStore::OpenLocal(flags.state_dir + "/checkpoints");
  if (!shards.ok()) return Fail(shards.status());
  const StatusOr<std::unique_ptr<RemoteObjects>> objects = OpenObjects(flags, access);
  if (!objects.ok()) return Fail(objects.status());
  // Nobody learns this worker's key, even where a root is above its state directory.
  const StatusOr<RootFolders> roots =
      RootFolders::Open(flags.data_roots, {flags.state_dir, flags.token_file});
  if (!roots.ok()) return Fail(Annotate(roots.status(), "--data-root"));
  const StatusOr<std::unique_ptr<codec::python::Host>> python_codecs = OpenPythonCodecs(flags);
  if (!python_codecs.ok()) return Fail(Annotate(python_codecs.status(), "--python-codec"));
  // Both outlive the transport, whose links call them.
  CodecThread codec_thread;
  TrafficWatch traffic;
  StatusOr<Transports> transports = Listen(flags, coordinator);
  if (!transports.ok()) return Fail(transports.status());
  v1::RelayOffer relay_offer;
  const StatusOr<std::unique_ptr<relay::Relay>> relay = StartRelay(flags, &relay_offer);
  if (!relay.ok()) return Fail(relay.status());
  transport::TransportsByName by_name;
  for (const auto& [name, transport] : *transports) by_name[name] = transport.get();
  BlobFetcher blobs(access, flags.state_dir + "/blobs");
  BlobFetcher pieces(access, flags.state_dir + "/pieces");
  BlobFetcher shard_copies(access, flags.state_dir + "/shard-copies");
  pieces.ForgetAll();  // What a killed process left.
  shard_copies.ForgetAll();

  std::optional<BoundaryDumpOptions> dump;
  if (!flags.dump_boundaries.empty()) {
    if (const Status status = MakeDirectories(flags.dump_boundaries); !status.ok()) {
      return Fail(Annotate(status, "--dump-boundaries"));
    }
    dump = BoundaryDumpOptions{.folder = flags.dump_boundaries, .every = flags.dump_every};
  }

  const StatusOr<std::shared_ptr<Rehearsal>> rehearsal = Rehearsal::Parse(flags.rehearse);
  if (!rehearsal.ok()) return Fail(rehearsal.status());
  if (*rehearsal != nullptr) LogWarning("REHEARSAL: this worker errs on purpose (--rehearse)");

  // The agent reports through the session and the session hands commands to the agent, so reports
  // that come before there is a session have nowhere to go; there are none before the first
  // command.
  std::unique_ptr<Session> session;
  std::vector<v1::Device> descriptions;
  for (const WorkerDevice& device : devices) descriptions.push_back(device.description);
  WorkerMetrics counted(std::string(Version()), descriptions);
  const auto send = [&](v1::WorkerMessage message) {
    counted.Note(message);
    session->Send(std::move(message));
  };
  Restart restart(arguments, [&session] { session->AwaitSent(kLastWordsLimit); });
  auto courier = std::make_unique<ShardCourier>(access, shards->get(), send);
  auto transfers = std::make_unique<ShardTransfers>(by_name, shards->get(), &traffic, send);
  StoredObjects stored_objects(objects->get());
  auto folders = std::make_unique<FolderCourier>(&stored_objects, shards->get(), send);
  v1::Hello hello;
  hello.mutable_devices()->Add(descriptions.begin(), descriptions.end());
  auto agent = std::make_unique<Agent>(Resources{
      .transports = std::move(by_name),
      .devices = std::move(devices),
      .codec_thread = &codec_thread,
      .shards = shards->get(),
      .blobs = &blobs,
      .pieces = &pieces,
      .shard_copies = &shard_copies,
      .courier = courier.get(),
      .traffic = &traffic,
      .roots = &*roots,
      .objects = objects->get(),
      .python_codecs = python_codecs->get(),
      .transfers = transfers.get(),
      .folders = folders.get(),
      .dump = dump,
      .messages_root = flags.state_dir + "/messages",
      .kept_messages = std::make_shared<MessageKeeper>(),
      .evidence_root = flags.state_dir + "/evidence",
      .senders = std::make_shared<SenderBook>(),
      .sign = flags.insecure ? SignDigests() : SignerOf(access),
      .rehearsal = *rehearsal,
      .send = send,
      .progress_timeout = absl::Seconds(flags.progress_timeout_seconds),
      .restart = [&restart](const RestartCause& cause) { restart(cause); },
      .make_stage =
          [&flags](const StageOptions& options) { return MakeStage(options, flags.state_dir); }});
  const auto collect = [&counted, agent = agent.get()] {
    v1::Heartbeat beat;
    agent->FillHeartbeat(&beat);
    return counted.PageOf(agent->Reading(), MemoryUsed(), beat.resident().memory_bytes());
  };
  StatusOr<std::unique_ptr<metrics::Endpoint>> scraped(nullptr);
  if (!flags.metrics.address.empty()) {
    const StatusOr<metrics::EndpointOptions> options = OptionsOf(flags.metrics);
    if (!options.ok()) return Fail(options.status());
    scraped = metrics::Endpoint::Open(*options, collect);
    if (!scraped.ok()) return Fail(Annotate(scraped.status(), "--metrics"));
  }
  hello.set_protocol_min(kProtocolMin);
  hello.set_protocol_max(kProtocolMax);
  hello.set_worker_id(state_dir->worker_id());
  hello.set_incarnation(RandomUuid());
  hello.set_name(flags.name.empty() ? HostName() : flags.name);
  Endpoints endpoints = EndpointsOf(flags, *transports, coordinator);
  hello.set_version(std::string(Version()));
  hello.set_pid(static_cast<uint32_t>(::getpid()));
  hello.set_host(HostName());
  hello.set_machine(MachineId());
  if (*relay != nullptr) *hello.mutable_relay() = std::move(relay_offer);
  hello.set_restarted_for(restarted_for.fault);
  hello.set_restart_cause(restarted_for.text);
  Leave leave;
  std::mutex session_made;
  {
    const std::lock_guard lock(session_made);
    session = std::make_unique<Session>(
        SessionOptions{.access = access,
                       .hello =
                           [&] {
                             v1::Hello now = hello;
                             now.set_unix_ms(UnixMsNow());
                             const auto found = endpoints.Find();
                             now.mutable_endpoints()->Add(found.begin(), found.end());
                             FollowOwnAddress(flags, relay->get(), endpoints.own(), &now);
                             agent->FillHello(&now);
                             leave.FillHello(&now);
                             return now;
                           },
                       .moved = [&] { return endpoints.Moved(); },
                       .on_command =
                           [&](v1::WorkerCommand command) {
                             { const std::lock_guard wait(session_made); }
                             if (command.has_serve_scopes()) {
                               const auto& scopes = command.serve_scopes().scopes();
                               if (*relay != nullptr)
                                 (*relay)->Serve({scopes.begin(), scopes.end()});
                               return;
                             }
                             if (command.has_may_leave()) return leave.Allow();
                             agent->Handle(std::move(command));
                           },
                       .heartbeat = [&](v1::Heartbeat* beat) { agent->FillHeartbeat(beat); },
                       .terms = *terms});
  }
  auto metrics_courier =
      std::make_unique<MetricsCourier>(access, state_dir->worker_id(), hello.name(), collect);
  SetLogTap([&](std::string_view level, std::string_view text) {
    const std::optional<Topic> topic = agent->CurrentRun();
    if (!topic) return;
    v1::WorkerMessage message;
    SetTopic(*topic, &message);
    message.mutable_log()->set_unix_ms(UnixMsNow());
    message.mutable_log()->set_level(std::string(level));
    message.mutable_log()->set_text(std::string(text));
    session->Send(std::move(message));
  });
  std::optional<witness::HostedWitness> witness;
  if (flags.witness) {
    witness.emplace(witness::Options{.coordinators = flags.coordinators,
                                     .state_dir = flags.state_dir + "/witness",
                                     .token_file = flags.witness_token_file,
                                     .name = hello.name() + "-witness",
                                     .version = std::string(Version())});
  }
  const int signal = AwaitEnd(flags, *access, *session, leave);
  restart.Disarm();
  witness.reset();
  const Status fatal = session->fatal();
  SetLogTap({});
  if (fatal.ok()) LogInfo("signal {}: shutting down", signal);
  // The agent's last words go through the session, and the session may hand over commands to its
  // end; links go last, since their loop reports too.
  scraped->reset();
  metrics_courier.reset();
  agent->Shutdown();
  courier->Shutdown();
  transfers->Shutdown();
  folders->Shutdown();
  transports->clear();
  session.reset();
  return fatal.ok() ? kOk : Fail(fatal);
}

int Main(int argc, char** argv) {
  const RestartCause restarted_for = TakeRestartCause();
  WorkerFlags flags;
  if (const std::optional<int> exit = ReadFlags(argc, argv, &flags)) return *exit;
  if (flags.metrics.dump) {
    fmt::print("{}", metrics::ToMarkdown(WorkerMetrics("", {}).PageOf(std::nullopt, 0, 0)));
    return kOk;
  }
  if (const Status status = InitLogging(flags.log_level); !status.ok()) {
    fmt::print(stderr, "longhaul-worker: {}\n", Message(status));
    return kWrongUsage;
  }
  RouteGrpcLog();
  RaiseFileLimit();
  if (!flags.left_out.empty()) LogInfo("{}", flags.left_out);
  if (flags.devices.empty()) flags.devices = FindDevices();
  StatusOr<std::vector<WorkerDevice>> devices = OpenDevices(flags.devices, flags.memory_share);
  if (!devices.ok()) {
    return Fail(Annotate(devices.status(), fmt::format("--device {}", flags.device)));
  }
  return Serve(flags, *std::move(devices), argv, restarted_for);
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  longhaul::KeepFilesPrivate();
  // All threads inherit it.
  longhaul::BlockShutdownSignals();
  try {
    return longhaul::worker::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul-worker: {}\n", error.what());
    return 1;
  }
}
