// longhaul-worker: one cell of a run at a time, for its coordinator.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/device_name.h"
#include "base/file.h"
#include "base/flags/command_line.h"
#include "base/flags/daemon_config.h"
#include "base/log.h"
#include "base/metrics/endpoint.h"
#include "base/peer_log.h"
#include "base/shutdown.h"
#include "base/status.h"
#include "base/version.h"
#include "proto/member/access.h"
#include "proto/rpc/address.h"
#include "proto/rpc/channel.h"
#include "transport/p2p/grpc/factory.h"
#include "transport/p2p/relay/factory.h"
#include "transport/p2p/ucx/factory.h"
#include "transport/relay/relay.h"
#include "transport/relay/ticket.h"
#include "worker/ranks/communicators.h"
#include "worker/rpc/agent.h"
#include "worker/rpc/device.h"
#include "worker/rpc/endpoints.h"
#include "worker/rpc/restart.h"
#include "worker/rpc/session.h"
#include "worker/rpc/state_dir.h"
#include "worker/rpc/worker_metrics.h"
#include "worker/stage/group/group_stage.h"
#include "worker/stage/stage.h"

namespace longhaul::worker {
namespace {

enum ExitCode { kOk = 0, kFailed = 1, kWrongUsage = 2 };

constexpr uint32_t kProtocolMin = 8;
constexpr uint32_t kProtocolMax = 8;
constexpr absl::Duration kFailureCheck = absl::Milliseconds(500);
// Of a process that restarts itself. What does not arrive, the next one says.
constexpr absl::Duration kLastWordsLimit = absl::Seconds(1);
constexpr absl::Duration kJoinLimit = absl::Seconds(5);
// Between two tries to get a new certificate.
constexpr absl::Duration kRenewPause = absl::Seconds(10);

constexpr char kUcx[] = "ucx";
constexpr char kGrpc[] = "grpc";
constexpr char kRelay[] = "relay";

struct Flags {
  std::string coordinator;
  std::string token_file;
  bool insecure = false;
  std::string state_dir;
  std::string name;
  std::vector<std::string> transports = {kUcx, kGrpc};
  std::string data_address = std::string(kAdvertiseAuto);
  std::string data_interface;
  std::string grpc_address;
  std::vector<std::string> advertise;
  std::string relay;
  std::string relay_advertise;
  std::string device = "cpu";
  double memory_share = 1;
  std::string metrics;
  std::string dump_boundaries;
  uint64_t dump_every = 16;
  double progress_timeout_seconds = 60;
  std::string log_level = "info";
};

int Fail(const Status& status) {
  fmt::print(stderr, "longhaul-worker: {}\n", Message(status));
  return kFailed;
}

// Empty: there is none.
std::string UsualStateDir() {
  const auto of = [](const char* name) -> std::string {
    const char* value = std::getenv(name);  // NOLINT(concurrency-mt-unsafe): before any thread
    return value == nullptr ? "" : value;
  };
  if (const std::string state = of("XDG_STATE_HOME"); !state.empty()) {
    return state + "/longhaul/worker";
  }
  const std::string home = of("HOME");
  return home.empty() ? "" : home + "/.local/state/longhaul/worker";
}

std::string HostName() {
  char name[256] = {};
  return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

bool Has(const Flags& flags, std::string_view transport) {
  return std::ranges::find(flags.transports, transport) != flags.transports.end();
}

// Where gRPC listens: beside UCX on a port of its own, unless the flags say where.
std::string GrpcAddress(const Flags& flags) {
  if (!flags.grpc_address.empty()) return flags.grpc_address;
  if (!Has(flags, kUcx)) return flags.data_address;
  StatusOr<HostPort> address = ParseHostPort(flags.data_address);
  if (!address.ok()) return flags.data_address;  // refused already
  address->port = 0;
  return ToString(*address);
}

// Whether something listens at the data address.
bool TakesDataAddress(const Flags& flags) {
  return Has(flags, kUcx) || flags.grpc_address.empty();
}

// Why it cannot listen where the flags say; empty: it may try.
std::string AddressProblem(const Flags& flags) {
  std::vector<std::pair<std::string, std::string>> addresses;
  if (TakesDataAddress(flags)) addresses.emplace_back("--data-address", flags.data_address);
  addresses.emplace_back("--grpc-address", GrpcAddress(flags));
  for (const auto& [flag, text] : addresses) {
    const auto address = ParseHostPort(text);
    if (!address.ok()) return fmt::format("{}: {}", flag, Message(address.status()));
    if (!flags.insecure || !flags.token_file.empty() || IsLoopback(address->host)) continue;
    return fmt::format(
        "--token-file is required with --insecure and {} {}, which other machines may reach", flag,
        text);
  }
  return "";
}

using Transports = std::map<std::string, std::unique_ptr<transport::Transport>, std::less<>>;

StatusOr<Transports> Listen(const Flags& flags) {
  Transports transports;
  if (Has(flags, kUcx)) {
    LH_ASSIGN_OR_RETURN(transports[kUcx],
                        transport::ucx::CreateTransport({.bind_address = flags.data_address,
                                                         .network_device = flags.data_interface}));
  }
  if (Has(flags, kGrpc)) {
    LH_ASSIGN_OR_RETURN(transports[kGrpc],
                        transport::grpc::CreateTransport({.bind_address = GrpcAddress(flags)}));
  }
  for (const auto& [name, transport] : transports) {
    LogInfo("data address {} ({})", transport->address(), name);
  }
  // It listens nowhere, so every worker has it.
  LH_ASSIGN_OR_RETURN(transports[kRelay],
                      transport::relay::CreateTransport({.coordinator = flags.coordinator}));
  return transports;
}

// What is advertised is the address behind port mapping, which UCX cannot pass; without gRPC it is
// another name of UCX's.
Endpoints EndpointsOf(const Flags& flags, const Transports& transports) {
  std::map<std::string, std::string> listening;
  for (const auto& [name, transport] : transports) listening[name] = transport->address();
  return Endpoints(listening, Has(flags, kGrpc) ? kGrpc : kUcx, flags.advertise, flags.coordinator);
}

// Carries links between others. Null: it was not asked for.
StatusOr<std::unique_ptr<relay::Relay>> StartRelay(const Flags& flags, v1::RelayOffer* offer) {
  if (flags.relay.empty()) return std::unique_ptr<relay::Relay>();
  LH_ASSIGN_OR_RETURN(const std::string secret,
                      relay::LoadOrMakeSecret(flags.state_dir + "/relay-secret"));
  StatusOr<std::unique_ptr<relay::Relay>> relay =
      relay::Relay::Start({.listen = flags.relay, .secret = secret});
  if (!relay.ok()) return Annotate(relay.status(), "--relay");
  LH_ASSIGN_OR_RETURN(HostPort address, ParseHostPort((*relay)->address()));
  if (address.host == "0.0.0.0" || address.host == "::") {
    address.host = OwnAddressTowards(flags.coordinator);
  }
  if (address.host.empty() && flags.relay_advertise.empty()) {
    return absl::UnavailableError(fmt::format(
        "there is no way to the coordinator {}, so the address at which others reach the relay is "
        "not known; look at its name and the network, or say it with --relay-advertise",
        flags.coordinator));
  }
  offer->set_address(flags.relay_advertise.empty() ? ToString(address) : flags.relay_advertise);
  offer->set_secret(secret);
  LogInfo("relay at {}, reached at {}", (*relay)->address(), offer->address());
  return relay;
}

StatusOr<std::unique_ptr<Stage>> MakeStage(const StageOptions& options,
                                           const std::string& state_dir) {
  if (options.ranks.size() < 2) return Stage::Create(options);
  return MakeGroupStage(options, CommunicatorsFor(options, state_dir));
}

// Joins where there is no certificate yet, as soon as the coordinator answers. Null: a signal came.
StatusOr<std::shared_ptr<Access>> OpenAccess(const Flags& flags, const std::string& worker_id) {
  const AccessOptions options{.address = flags.coordinator,
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
    StatusOr<std::shared_ptr<Access>> access = Access::Open(options, Deadline::After(kJoinLimit));
    if (!absl::IsUnavailable(access.status())) return access;
    if (last_failure != Message(access.status())) {
      last_failure = Message(access.status());
      LogWarning("coordinator {}: {}; dialling again", flags.coordinator, last_failure);
    }
    if (WaitForShutdownSignal(kFailureCheck) != 0) return std::shared_ptr<Access>();
  }
}

int Serve(const Flags& flags, std::vector<WorkerDevice> devices, char** arguments,
          const RestartCause& restarted_for) {
  const StatusOr<StateDir> state_dir = StateDir::Open(flags.state_dir);
  if (!state_dir.ok()) return Fail(state_dir.status());
  const StatusOr<std::shared_ptr<Access>> opened = OpenAccess(flags, state_dir->worker_id());
  if (!opened.ok()) return Fail(opened.status());
  const std::shared_ptr<Access> access = *opened;
  if (access == nullptr) return kOk;
  auto shards = ShardStore::OpenLocal(flags.state_dir + "/checkpoints");
  if (!shards.ok()) return Fail(shards.status());
  // Both outlive the transport, whose links call them.
  CodecThread codec_thread;
  TrafficWatch traffic;
  StatusOr<Transports> transports = Listen(flags);
  if (!transports.ok()) return Fail(transports.status());
  v1::RelayOffer relay_offer;
  const StatusOr<std::unique_ptr<relay::Relay>> relay = StartRelay(flags, &relay_offer);
  if (!relay.ok()) return Fail(relay.status());
  std::map<std::string, transport::Transport*, std::less<>> by_name;
  for (const auto& [name, transport] : *transports) by_name[name] = transport.get();
  BlobFetcher blobs(access, flags.state_dir + "/blobs");
  BlobFetcher shard_copies(access, flags.state_dir + "/shard-copies");
  shard_copies.ForgetAll();  // What a killed process left.

  std::optional<BoundaryDumpOptions> dump;
  if (!flags.dump_boundaries.empty()) {
    if (const Status status = MakeDirectories(flags.dump_boundaries); !status.ok()) {
      return Fail(Annotate(status, "--dump-boundaries"));
    }
    dump = BoundaryDumpOptions{.folder = flags.dump_boundaries, .every = flags.dump_every};
  }

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
  v1::Hello hello;
  hello.mutable_devices()->Add(descriptions.begin(), descriptions.end());
  auto agent = std::make_unique<Agent>(Resources{
      .transports = std::move(by_name),
      .devices = std::move(devices),
      .codec_thread = &codec_thread,
      .shards = shards->get(),
      .blobs = &blobs,
      .shard_copies = &shard_copies,
      .courier = courier.get(),
      .traffic = &traffic,
      .transfers = transfers.get(),
      .dump = dump,
      .messages_root = flags.state_dir + "/messages",
      .send = send,
      .progress_timeout = absl::Seconds(flags.progress_timeout_seconds),
      .restart = [&restart](const RestartCause& cause) { restart(cause); },
      .make_stage =
          [&flags](const StageOptions& options) { return MakeStage(options, flags.state_dir); }});
  StatusOr<std::unique_ptr<metrics::Endpoint>> scraped(nullptr);
  if (!flags.metrics.empty()) {
    scraped = metrics::Endpoint::Open(flags.metrics, [&counted, agent = agent.get()] {
      v1::Heartbeat beat;
      agent->FillHeartbeat(&beat);
      return counted.PageOf(agent->Reading(), MemoryUsed(), beat.resident().memory_bytes());
    });
    if (!scraped.ok()) return Fail(Annotate(scraped.status(), "--metrics"));
  }
  hello.set_protocol_min(kProtocolMin);
  hello.set_protocol_max(kProtocolMax);
  hello.set_worker_id(state_dir->worker_id());
  hello.set_incarnation(RandomUuid());
  hello.set_name(flags.name.empty() ? HostName() : flags.name);
  Endpoints endpoints = EndpointsOf(flags, *transports);
  hello.set_version(std::string(Version()));
  hello.set_pid(static_cast<uint32_t>(::getpid()));
  hello.set_host(HostName());
  if (*relay != nullptr) *hello.mutable_relay() = relay_offer;
  hello.set_restarted_for(restarted_for.fault);
  hello.set_restart_cause(restarted_for.text);
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
                             agent->FillHello(&now);
                             return now;
                           },
                       .moved = [&] { return endpoints.Moved(); },
                       .on_command =
                           [&](v1::WorkerCommand command) {
                             { const std::lock_guard wait(session_made); }
                             agent->Handle(std::move(command));
                           },
                       .heartbeat = [&](v1::Heartbeat* beat) { agent->FillHeartbeat(beat); }});
  }
  SetLogTap([&](std::string_view level, std::string_view text) {
    std::string run_id;
    uint64_t epoch = 0;
    if (!agent->CurrentRun(&run_id, &epoch)) return;
    v1::WorkerMessage message;
    message.set_run_id(run_id);
    message.set_epoch(epoch);
    message.mutable_log()->set_unix_ms(UnixMsNow());
    message.mutable_log()->set_level(std::string(level));
    message.mutable_log()->set_text(std::string(text));
    session->Send(std::move(message));
  });
  int signal = 0;
  while (signal == 0 && session->fatal().ok()) {
    signal = WaitForShutdownSignal(kFailureCheck);
    LogWhatWasLeftOut();
    if (const Status renewed = access->RenewIfDue(kRenewPause); !renewed.ok()) {
      LogWarning("{}", Message(renewed));
    }
  }
  restart.Disarm();
  const Status fatal = session->fatal();
  SetLogTap({});
  if (fatal.ok()) LogInfo("signal {}: shutting down", signal);
  // The agent's last words go through the session, and the session may hand over commands to its
  // end; links go last, since their loop reports too.
  scraped->reset();
  agent->Shutdown();
  courier->Shutdown();
  transfers->Shutdown();
  transports->clear();
  session.reset();
  return fatal.ok() ? kOk : Fail(fatal);
}

int Main(int argc, char** argv) {
  const RestartCause restarted_for = TakeRestartCause();
  Flags flags;
  CLI::App app("A worker of longhaul: one stage of a run at a time, for its coordinator.",
               "longhaul-worker");
  SetUpCommandLine(app);
  app.add_option("--coordinator", flags.coordinator, "host:port of the coordinator");
  app.add_option("--token-file", flags.token_file,
                 "file with a join token, to become a member with; with --insecure: with the "
                 "coordinator's token");
  app.add_flag("--insecure", flags.insecure,
               "plain TCP to a coordinator that was started with --insecure, too");
  app.add_option("--state-dir", flags.state_dir,
                 "folder for identity, checkpoints and fetched data; one for each worker; default: "
                 "longhaul/worker in $XDG_STATE_HOME or ~/.local/state");
  app.add_option("--name", flags.name, "what people see; default: the host's name");
  const CLI::Option* const transport =
      app.add_option("--transport", flags.transports,
                     "data transports to listen on, of ucx and grpc, with a comma between")
          ->delimiter(',')
          ->check(CLI::IsMember({kUcx, kGrpc}))
          ->capture_default_str();
  app.add_option("--data-address", flags.data_address,
                 "ip:port to exchange tensors at; UCX trusts its network, so only an address of a "
                 "private network; port 0 takes any free one. 'auto': a free port of the address "
                 "that this machine has towards the coordinator, without ucx where that is public")
      ->capture_default_str();
  app.add_option("--data-interface", flags.data_interface,
                 "network interface of the data address; default: the one that has it");
  app.add_option("--grpc-address", flags.grpc_address,
                 "ip:port to exchange tensors at over gRPC; may face open networks; default: the "
                 "data address, beside ucx with a free port of its own");
  app.add_option("--advertise", flags.advertise,
                 "host:port at which other workers reach the gRPC address (without grpc: the data "
                 "address), if not by itself; repeatable. 'auto': the gRPC address's port at the "
                 "address that this machine has towards the coordinator, also when that changes");
  app.add_option("--relay", flags.relay,
                 "ip:port at which this worker carries links, encrypted end to end, between "
                 "workers that do not reach each other; without: it carries none");
  app.add_option("--relay-advertise", flags.relay_advertise,
                 "host:port at which others reach the relay; default: its port at this machine's "
                 "address towards the coordinator");
  app.add_option(
         "--device", flags.device,
         "what to offer for stages: cpu, cuda (the first GPU), cuda:N or a range of GPUs such as "
         "cuda:0-3, also several with commas between; cpu,cpu is two ranks that share the "
         "machine's cores and memory; what keeps a GPU from being used is said, never passed over")
      ->capture_default_str();
  app.add_option("--memory-share", flags.memory_share,
                 "part of each device's memory that stages here may take, where several workers "
                 "share it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1.0));
  app.add_option(
      "--dump-boundaries", flags.dump_boundaries,
      "folder for boundary tensors as .npy files, to measure codecs on: of a training "
      "step the first microbatch's activations and gradients, as this worker sends them, "
      "before they are encoded");
  app.add_option("--dump-every", flags.dump_every, "steps from one dump to the next")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--progress-timeout", flags.progress_timeout_seconds,
                 "seconds that a stage may be stuck in one piece of work, and at least 20 steps; "
                 "then the worker says so and restarts itself")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option("--metrics", flags.metrics,
                 "numeric host:port at which Prometheus finds metrics, such as 127.0.0.1:9465; "
                 "whoever reaches it reads them; default: none");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  AddYamlConfig(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kWrongUsage;
  }
  const auto usage = [](const std::string& sentence) {
    fmt::print(stderr, "longhaul-worker: {}\n", sentence);
    return static_cast<int>(kWrongUsage);
  };
  if (flags.coordinator.empty())
    return usage("--coordinator is required: the coordinator's host:port");
  if (flags.state_dir.empty()) flags.state_dir = UsualStateDir();
  if (flags.state_dir.empty()) return usage("--state-dir is required: the folder of this worker");
  if (const auto address = ParseHostPort(flags.coordinator); !address.ok()) {
    return usage(fmt::format("--coordinator: {}", Message(address.status())));
  }
  for (const auto& [flag, text] :
       {std::pair("--relay", flags.relay), std::pair("--relay-advertise", flags.relay_advertise)}) {
    const auto address = ParseHostPort(text);
    if (text.empty() || address.ok()) continue;
    return usage(fmt::format("{}: {}", flag, Message(address.status())));
  }
  std::string left_out;
  if (TakesDataAddress(flags) && flags.data_address == kAdvertiseAuto) {
    const std::string own = OwnAddressTowards(flags.coordinator);
    if (own.empty()) {
      return Fail(absl::UnavailableError(fmt::format(
          "there is no way to the coordinator {}, so the address at which others reach this "
          "machine is not known; look at its name and the network, or say it with --data-address",
          flags.coordinator)));
    }
    flags.data_address = ToString(HostPort{own, 0});
    if (Has(flags, kUcx) && !IsPrivate(own)) {
      if (transport->count() > 0) {
        return usage(fmt::format(
            "--transport ucx is for private networks, because anybody can end a worker through its "
            "port, and {} is a public address; take --transport grpc, or name the address in "
            "--data-address",
            own));
      }
      std::erase(flags.transports, kUcx);
      left_out = fmt::format(
          "no ucx, because {} is a public address and anybody can end a worker through its port; "
          "--data-address names a private one",
          own);
    }
  }
  if (const std::string problem = AddressProblem(flags); !problem.empty()) return usage(problem);
  for (const std::string& address : flags.advertise) {
    if (address == kAdvertiseAuto) {
      if (Has(flags, kGrpc)) continue;
      return usage(
          "--advertise auto is for gRPC, and --transport leaves it out; UCX is reached at "
          "its --data-address only");
    }
    const auto parsed = ParseHostPort(address);
    if (!parsed.ok()) return usage(fmt::format("--advertise: {}", Message(parsed.status())));
    if (parsed->port == 0) {
      return usage(fmt::format("--advertise {}: others cannot dial port 0", address));
    }
  }
  const auto grpc_address = ParseHostPort(GrpcAddress(flags));
  if (Has(flags, kGrpc) && flags.advertise.empty() &&
      (grpc_address->host == "0.0.0.0" || grpc_address->host == "::")) {
    return usage(fmt::format(
        "--grpc-address {} is no address that others can dial; say with --advertise host:port "
        "where they reach it, or with --advertise auto that they reach this machine as the "
        "coordinator does",
        ToString(*grpc_address)));
  }
  const StatusOr<std::vector<DeviceName>> device_names = ParseDeviceNames(flags.device);
  if (!device_names.ok()) return usage(fmt::format("--device: {}", Message(device_names.status())));
  if (device_names->front().cuda_index && !flags.dump_boundaries.empty()) {
    return usage(
        "--dump-boundaries writes tensors of the host's memory, and with --device cuda they are on "
        "the GPU; leave one of the two out");
  }
  if (const Status status = InitLogging(flags.log_level); !status.ok()) {
    return usage(std::string(Message(status)));
  }
  RouteGrpcLog();
  RaiseFileLimit();
  if (!left_out.empty()) LogInfo("{}", left_out);
  StatusOr<std::vector<WorkerDevice>> devices = OpenDevices(*device_names, flags.memory_share);
  if (!devices.ok()) {
    return Fail(Annotate(devices.status(), fmt::format("--device {}", flags.device)));
  }
  return Serve(flags, *std::move(devices), argv, restarted_for);
}

}  // namespace
}  // namespace longhaul::worker

int main(int argc, char** argv) {
  // All threads inherit it.
  longhaul::BlockShutdownSignals();
  try {
    return longhaul::worker::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul-worker: {}\n", error.what());
    return 1;
  }
}
