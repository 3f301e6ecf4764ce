#include "programs/longhaul_worker_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_join.h"
#include "base/address.h"
#include "base/flags/command_line.h"
#include "base/flags/daemon_config.h"
#include "base/http/host_rules.h"
#include "base/root_folders.h"
#include "base/status.h"
#include "transport/p2p/registry/registry.h"

namespace longhaul::worker {

bool Has(const WorkerFlags& flags, std::string_view transport) {
  return std::ranges::find(flags.transports, transport) != flags.transports.end();
}

namespace {

constexpr std::string_view kDeviceAuto = "auto";

// The transports that listen, in the order in which they get addresses.
std::vector<const TransportTraits*> ListenersOf(const WorkerFlags& flags) {
  std::vector<const TransportTraits*> listeners;
  for (const TransportTraits& one : kTransports) {
    if (one.listens && Has(flags, one.name)) listeners.push_back(&one);
  }
  return listeners;
}

bool HasAddressOfItsOwn(const WorkerFlags& flags, const TransportTraits& transport) {
  const auto own = flags.addresses.find(transport.name);
  return own != flags.addresses.end() && !own->second.empty();
}

std::string AddressFlag(const TransportTraits& transport) {
  return fmt::format("--{}-address", transport.name);
}

}  // namespace

std::string AddressOf(const WorkerFlags& flags, const TransportTraits& transport) {
  if (HasAddressOfItsOwn(flags, transport)) return flags.addresses.find(transport.name)->second;
  const std::vector<const TransportTraits*> listeners = ListenersOf(flags);
  if (listeners.empty() || listeners.front() == &transport) return flags.data_address;
  StatusOr<HostPort> address = ParseHostPort(flags.data_address);
  if (!address.ok()) return flags.data_address;  // refused already
  address->port = 0;
  return ToString(*address);
}

const TransportTraits* FirstToFaceStrangers(const WorkerFlags& flags) {
  for (const TransportTraits* one : ListenersOf(flags)) {
    if (one->faces_strangers) return one;
  }
  return nullptr;
}

namespace {

std::vector<std::string> NamesOf(const std::vector<TransportKind>& kinds) {
  std::vector<std::string> names;
  for (const TransportKind kind : kinds) names.emplace_back(ToString(kind));
  return names;
}

// The transports for open networks: "gRPC or X".
std::string ThatFaceStrangers(std::string_view TransportTraits::*word) {
  std::vector<std::string_view> words;
  for (const TransportTraits& one : kTransports) {
    if (one.listens && one.faces_strangers) words.push_back(one.*word);
  }
  return fmt::format("{}", fmt::join(words, " or "));
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

// Whether something listens at the data address.
bool TakesDataAddress(const WorkerFlags& flags) {
  return std::ranges::any_of(ListenersOf(flags), [&](const TransportTraits* one) {
    return !HasAddressOfItsOwn(flags, *one);
  });
}

Status CheckAddresses(const WorkerFlags& flags) {
  std::vector<std::pair<std::string, std::string>> addresses;
  if (TakesDataAddress(flags)) addresses.emplace_back("--data-address", flags.data_address);
  for (const TransportTraits& one : kTransports) {
    if (HasAddressOfItsOwn(flags, one)) {
      addresses.emplace_back(AddressFlag(one), AddressOf(flags, one));
    }
  }
  for (const auto& [flag, text] : addresses) {
    const auto address = ParseHostPort(text);
    if (!address.ok()) return Annotate(address.status(), flag);
    if (!flags.insecure || !flags.token_file.empty() || IsLoopback(address->host)) continue;
    return InvalidArgument(
        "--token-file is required with --insecure and {} {}, which other machines may reach", flag,
        text);
  }
  return absl::OkStatus();
}

// --data-address auto.
Status FindDataAddress(WorkerFlags* flags) {
  const std::string own = OwnAddressTowards(flags->coordinators);
  if (own.empty()) {
    return Unavailable(
        "there is no way to the coordinator {}, so the address at which others reach this machine "
        "is not known; look at its name and the network, or say it with --data-address",
        absl::StrJoin(flags->coordinators, ", "));
  }
  flags->data_address = ToString(HostPort{own, 0});
  return absl::OkStatus();
}

// Checks that each transport may listen at its address. Those that may not are left out, unless the
// user asked for them by name (`named`). `chosen`: the user chose the address.
Status CheckTransports(bool named, bool chosen, WorkerFlags* flags) {
  for (const TransportTraits* one : ListenersOf(*flags)) {
    const StatusOr<HostPort> address = ParseHostPort(AddressOf(*flags, *one));
    if (!address.ok()) continue;  // CheckAddresses says why
    const std::string& host = address->host;
    std::string why, instead = ThatFaceStrangers(&TransportTraits::name);
    if (!one->takes_ipv6 && host.find(':') != std::string::npos) {
      why = fmt::format("it does not work over IPv6, and {} is such an address", host);
    } else if (!one->faces_strangers && !chosen && !IsPrivate(host)) {
      why = fmt::format("{} is a public address, and anybody can end a worker through its port",
                        host);
      instead += ", or name the address in --data-address";
    }
    if (const Status may = transport::MayUse(one->kind); why.empty() && !may.ok()) {
      why = Message(may);
    }
    if (why.empty()) continue;
    if (named) {
      return InvalidArgument("--transport {} cannot be used: {}; take --transport {}", one->name,
                             why, instead);
    }
    std::erase(flags->transports, one->name);
    flags->left_out = fmt::format("no {}: {}", one->name, why);
  }
  return absl::OkStatus();
}

// Whether others can dial what the worker says of itself.
Status CheckAdvertised(const WorkerFlags& flags) {
  for (const std::string& address : flags.advertise) {
    if (address == kAdvertiseAuto) {
      if (FirstToFaceStrangers(flags) != nullptr) continue;
      return InvalidArgument(
          "--advertise auto is for {}, and --transport leaves it out; {} is reached at its "
          "--data-address only",
          ThatFaceStrangers(&TransportTraits::title), ListenersOf(flags).front()->title);
    }
    const auto parsed = ParseHostPort(address);
    if (!parsed.ok()) return Annotate(parsed.status(), "--advertise");
    if (parsed->port == 0) {
      return InvalidArgument("--advertise {}: others cannot dial port 0", address);
    }
  }
  for (const TransportTraits* one : ListenersOf(flags)) {
    if (!one->faces_strangers || !flags.advertise.empty()) continue;
    const auto address = ParseHostPort(AddressOf(flags, *one));
    if (address->host != "0.0.0.0" && address->host != "::") continue;
    return InvalidArgument(
        "{} {} is no address that others can dial; say with --advertise host:port where they "
        "reach it, or with --advertise auto that they reach this machine as the coordinator does",
        AddressFlag(*one), ToString(*address));
  }
  return absl::OkStatus();
}

// Checks the flags, and fills in what follows from them. kUnavailable: they may be right, but there
// is no way to the coordinator.
Status Complete(bool transport_named, WorkerFlags* flags) {
  if (flags->coordinators.empty()) {
    return InvalidArgument("--coordinator is required: the coordinator's host:port");
  }
  if (flags->state_dir.empty()) flags->state_dir = UsualStateDir();
  if (flags->state_dir.empty()) {
    return InvalidArgument("--state-dir is required: the folder of this worker");
  }
  StatusOr<std::vector<std::string>> coordinators =
      ParseAddressList(absl::StrJoin(flags->coordinators, ","));
  if (!coordinators.ok()) return Annotate(coordinators.status(), "--coordinator");
  flags->coordinators = *std::move(coordinators);
  if (const std::string problem = ProblemOfAddresses(
          {{"--relay", flags->relay}, {"--relay-advertise", flags->relay_advertise}});
      !problem.empty()) {
    return absl::InvalidArgumentError(problem);
  }
  if (const std::string problem = ProblemOf(flags->metrics); !problem.empty()) {
    return absl::InvalidArgumentError(problem);
  }
  const bool find = TakesDataAddress(*flags) && flags->data_address == kAdvertiseAuto;
  if (find) LH_RETURN_IF_ERROR(FindDataAddress(flags));
  for (const std::string& host : flags->remote_hosts) {
    if (!host.empty() && host.find('/') == std::string::npos) continue;
    return InvalidArgument("--remote-host: expected a host such as example.org:9000, got '{}'",
                           host);
  }
  for (const std::string& network : flags->remote_networks) {
    const Status parsed = http::ParseIpNetwork(network).status();
    if (!parsed.ok()) return Annotate(parsed, "--remote-network");
  }
  if (const Status roots = RootFolders::Open(flags->data_roots).status(); !roots.ok()) {
    return Annotate(roots, "--data-root");
  }
  LH_RETURN_IF_ERROR(CheckAddresses(*flags));
  LH_RETURN_IF_ERROR(CheckTransports(transport_named, !find, flags));
  LH_RETURN_IF_ERROR(CheckAdvertised(*flags));
  // Its tensors are in the host's memory.
  if (flags->device == kDeviceAuto && !flags->dump_boundaries.empty()) flags->device = "cpu";
  if (flags->device == kDeviceAuto) return absl::OkStatus();
  StatusOr<std::vector<DeviceName>> devices = ParseDeviceNames(flags->device);
  if (!devices.ok()) return Annotate(devices.status(), "--device");
  flags->devices = *std::move(devices);
  if (flags->devices.front().cuda_index && !flags->dump_boundaries.empty()) {
    return InvalidArgument(
        "--dump-boundaries writes tensors of the host's memory, and with --device cuda they are on "
        "the GPU; leave one of the two out");
  }
  return absl::OkStatus();
}

}  // namespace

std::optional<int> ReadFlags(int argc, char** argv, WorkerFlags* flags) {
  flags->transports = NamesOf(ListeningTransports());
  CLI::App app("A worker of longhaul: one stage of a run at a time, for its coordinator.",
               "longhaul-worker");
  SetUpCommandLine(app);
  app.add_option("--coordinator", flags->coordinators,
                 "host:port of the coordinator, and of its standby behind a comma: "
                 "the worker goes to the next one when one does not serve")
      ->delimiter(',');
  app.add_option("--token-file", flags->token_file,
                 "file with a join token, to become a member with; with --insecure: with the "
                 "coordinator's token");
  app.add_flag("--insecure", flags->insecure,
               "plain TCP to a coordinator that was started with --insecure, too");
  app.add_option("--state-dir", flags->state_dir,
                 "folder for identity, checkpoints and fetched data; one for each worker; default: "
                 "longhaul/worker in $XDG_STATE_HOME or ~/.local/state");
  app.add_option("--name", flags->name, "what people see; default: the host's name");
  const CLI::Option* const transport =
      app.add_option("--transport", flags->transports,
                     fmt::format("data transports to listen on, with a comma between; there are {}",
                                 fmt::join(flags->transports, " and ")))
          ->delimiter(',')
          ->check(CLI::IsMember(flags->transports))
          ->capture_default_str();
  app.add_option("--data-address", flags->data_address,
                 "ip:port to exchange tensors at; UCX trusts its network, so only an address of a "
                 "private network; port 0 takes any free one. 'auto': a free port of the address "
                 "that this machine has towards the coordinator, without ucx where that is public")
      ->capture_default_str();
  app.add_option("--data-interface", flags->data_interface,
                 "network interface of the data address; default: the one that has it");
  for (const TransportTraits& one : kTransports) {
    if (!one.listens || !one.faces_strangers) continue;
    app.add_option(AddressFlag(one), flags->addresses[std::string(one.name)],
                   fmt::format("ip:port to exchange tensors at over {}; may face open networks; "
                               "default: the data address, with a free port of its own beside "
                               "other transports",
                               one.title));
  }
  app.add_option("--advertise", flags->advertise,
                 "host:port at which other workers reach the TCP address (without tcp: the gRPC "
                 "address), if not by itself; repeatable. 'auto': that address's port at the "
                 "address that this machine has towards the coordinator, also when that changes");
  app.add_option("--relay", flags->relay,
                 "ip:port at which this worker carries links, encrypted end to end, between "
                 "workers that do not reach each other; without: it carries none");
  app.add_option("--relay-advertise", flags->relay_advertise,
                 "host:port at which others reach the relay; default: its port at this machine's "
                 "address towards the coordinator");
  app.add_option(
         "--device", flags->device,
         "what to offer for stages: auto (all GPUs of the machine that work, else its CPU), cpu, "
         "cuda (the first GPU), cuda:N or a range of GPUs such as cuda:0-3, also several with "
         "commas between; cpu,cpu is two ranks that share the machine's cores and memory; what "
         "keeps a GPU from being used is said, never passed over. A worker has one stage at a "
         "time: without tensor parallelism start one for each GPU")
      ->capture_default_str();
  app.add_option("--memory-share", flags->memory_share,
                 "part of each device's memory that stages here may take, where several workers "
                 "share it")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1.0));
  app.add_flag("--remote-credentials", flags->remote_credentials,
               "read models and data sets at addresses with this machine's credentials (HF_TOKEN, "
               "~/.aws and others); every user of the coordinator can then have this worker read "
               "what those open; without: what everybody may read, and what the coordinator signs");
  app.add_option("--data-root", flags->data_roots,
                 "a folder of this machine in which runs may name models and data sets; every user "
                 "of the coordinator can then learn what is in it; repeatable; without: other "
                 "workers and the coordinator send them");
  app.add_option(
      "--remote-host", flags->remote_hosts,
      "a server to read models and data sets from beside the hub, Amazon S3 and Google "
      "Cloud Storage: HOST, HOST:PORT, HOST:* or *.DOMAIN; may speak http; a name must have a "
      "public address, or one of --remote-network; repeatable");
  app.add_option("--remote-network", flags->remote_networks,
                 "a private network, such as 10.1.0.0/16, in which a name of --remote-host may be; "
                 "repeatable");
  app.add_option(
         "--python-codec", flags->python_codecs,
         "a module of Python whose classes runs may name as codecs, python:MODULE:CLASS; every "
         "user of the coordinator can then have them run here, with arguments of their own; "
         "searched in the current folder first; repeatable, or with commas between; for "
         "research: slow")
      ->delimiter(',')
      ->type_name("MODULE");
  app.add_option(
      "--dump-boundaries", flags->dump_boundaries,
      "folder for boundary tensors as .npy files, to measure codecs on: activations and gradients "
      "of a training step's first microbatch, as this worker sends them, "
      "before they are encoded");
  app.add_option("--rehearse", flags->rehearse,
                 "a fault or a lie that this worker commits, to try what verified training does "
                 "about it, such as flip-sent:step=6; a wrong one prints all of them; repeatable")
      ->type_name("FAULT");
  app.add_option("--dump-every", flags->dump_every, "steps from one dump to the next")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 32))
      ->capture_default_str();
  app.add_option("--leave-within", flags->leave_within_seconds,
                 "seconds that this worker may take, after SIGTERM, to hand its stage to another "
                 "one; less than what the machine has left; 0: it ends at once, as after SIGINT")
      ->check(CLI::Range(0.0, 3600.0))
      ->capture_default_str();
  app.add_option("--progress-timeout", flags->progress_timeout_seconds,
                 "seconds that a stage may be stuck in one piece of work, and at least 20 steps; "
                 "then the worker says so and restarts itself")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_flag(
      "--witness", flags->witness,
      "also take part when the two coordinators of --coordinator decide who of them leads; "
      "the first time with --witness-token-file");
  app.add_option("--witness-token-file", flags->witness_token_file,
                 "file with a join token for witnesses: longhaul token create --role witness")
      ->needs("--witness");
  AddMetricsFlags(app, &flags->metrics, "127.0.0.1:9465");
  app.add_option("--log-level", flags->log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  AddYamlConfig(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kWrongUsage;
  }
  if (flags->metrics.dump) return std::nullopt;  // which needs no other flag
  const Status status = Complete(transport->count() > 0, flags);
  if (status.ok()) return std::nullopt;
  fmt::print(stderr, "longhaul-worker: {}\n", Message(status));
  return absl::IsUnavailable(status) ? kFailed : kWrongUsage;
}

}  // namespace longhaul::worker
