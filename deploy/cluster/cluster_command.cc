#include "deploy/cluster/cluster_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>
#include <string>

#include "base/device_name.h"
#include "base/file.h"
#include "base/units.h"
#include "deploy/cluster/cluster.h"
#include "deploy/cluster/cluster_status.h"
#include "deploy/cluster/network.h"
#include "deploy/cluster/relay/relay.h"
#include "deploy/cluster/shaping.h"
#include "run/file/topology.h"

namespace longhaul {
namespace {

constexpr int kFailed = 1;
constexpr int kInterrupted = 130;

// Prints the error, if any; the program's exit code.
int Finish(const Status& status) {
  if (status.ok()) return 0;
  fmt::print(stderr, "longhaul cluster: {}\n", Message(status));
  return absl::IsCancelled(status) ? kInterrupted : kFailed;
}

void AddName(CLI::App* command, std::string* name) {
  *name = kDefaultClusterName;
  command->add_option("--name", *name, "Which cluster")
      ->capture_default_str()
      ->check(CLI::Validator(
          [](const std::string& text) { return std::string(Message(CheckClusterName(text))); },
          "NAME"));
}

CLI::Validator RateValidator() {
  return {[](std::string& text) { return std::string(Message(ParseLinkRate(text).status())); },
          "RATE"};
}

CLI::Validator TimeValidator() {
  return {[](std::string& text) { return std::string(Message(ParseDuration(text).status())); },
          "TIME"};
}

CLI::Validator DelayValidator() {
  return {[](std::string& text) { return std::string(Message(ParseLinkDelay(text).status())); },
          "TIME"};
}

CLI::Validator LossValidator() {
  return {[](std::string& text) { return std::string(Message(ParseLoss(text).status())); },
          "PERCENT"};
}

// What `up` and `link` both have. Empty: not named.
struct LinkArguments {
  std::string rate, up_rate, down_rate, delay, jitter, loss;

  void Add(CLI::App* command) {
    command
        ->add_option("--rate", rate,
                     "Rate of a worker's link, each way (10mbit, 1gbit), or unlimited")
        ->check(RateValidator());
    command->add_option("--up-rate", up_rate, "Rate of what a worker sends, instead of --rate")
        ->check(RateValidator());
    command->add_option("--down-rate", down_rate, "Rate of what it receives, instead of --rate")
        ->check(RateValidator());
    command
        ->add_option("--delay", delay,
                     "How long a packet is under way, one way (25ms). Between two workers the "
                     "larger delay of both counts, as the smaller rate does")
        ->check(DelayValidator());
    command
        ->add_option("--jitter", jitter,
                     "Variation of the delay to either side (2ms); packets keep their order")
        ->check(DelayValidator());
    command->add_option("--loss", loss, "Share of packets that get lost (0.1%)")
        ->check(LossValidator());
  }
  bool Empty() const { return (rate + up_rate + down_rate + delay + jitter + loss).empty(); }
  // The texts are known to be good.
  void Put(LinkChange* change) const {
    const std::string& up = up_rate.empty() ? rate : up_rate;
    const std::string& down = down_rate.empty() ? rate : down_rate;
    if (!up.empty()) change->up_bits_per_second = *ParseLinkRate(up);
    if (!down.empty()) change->down_bits_per_second = *ParseLinkRate(down);
    if (!delay.empty()) change->delay = *ParseLinkDelay(delay);
    if (!jitter.empty()) change->jitter = *ParseLinkDelay(jitter);
    if (!loss.empty()) change->loss = *ParseLoss(loss);
  }
};

struct UpArguments {
  ClusterUpOptions options;
  LinkArguments link;
  std::string topology_file;
  std::string delay_by;
  std::string timeout = "60s";
};

std::string DescribeLink(const LinkParameters& link) {
  const uint64_t up = link.up_bits_per_second, down = link.down_bits_per_second;
  std::string text;
  if (up == down) {
    text = up == 0 ? "not shaped" : fmt::format("of {} each way", FormatLinkRate(up));
  } else {
    text = fmt::format("of {} up and {} down", FormatLinkRate(up), FormatLinkRate(down));
  }
  if (!link.quality.Perfect()) text += ", " + FormatLinkQuality(link.quality) + " one way";
  return text;
}

StatusOr<TopologySpec> ReadTopology(const std::string& file) {
  LH_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, 1 << 20));
  return ParseTopologyFile(text, file);
}

int RunUp(UpArguments arguments) {
  ClusterUpOptions& options = arguments.options;
  LinkChange link;
  arguments.link.Put(&link);
  options.link.up_bits_per_second = link.up_bits_per_second.value_or(0);
  options.link.down_bits_per_second = link.down_bits_per_second.value_or(0);
  options.link.quality = {link.delay.value_or(absl::ZeroDuration()),
                          link.jitter.value_or(absl::ZeroDuration()), link.loss.value_or(0)};
  if (const Status quality = CheckLinkQuality(options.link.quality); !quality.ok()) {
    throw CLI::ValidationError("--jitter", std::string(Message(quality)));
  }
  if (arguments.delay_by == ToString(DelayBy::kNetem)) options.delay_by = DelayBy::kNetem;
  if (arguments.delay_by == ToString(DelayBy::kRelay)) options.delay_by = DelayBy::kRelay;
  options.patience = *ParseDuration(arguments.timeout);
  if (!arguments.topology_file.empty()) {
    StatusOr<TopologySpec> topology = ReadTopology(arguments.topology_file);
    if (!topology.ok()) return Finish(topology.status());
    options.topology = *std::move(topology);
  }
  const StatusOr<ClusterState> state = ClusterUp(options);
  if (!state.ok()) return Finish(state.status());
  const bool several = state->name != kDefaultClusterName;
  fmt::print(
      "Cluster '{}' is up: {} workers connected, links {}.\n"
      "Next: longhaul {}submit RUN.yaml --watch   (then: longhaul cluster status{}, longhaul "
      "cluster down{})\n",
      state->name, state->workers.size(), DescribeLink(options.link),
      several ? fmt::format("--coordinator {} --token-file {} ", state->coordinator_address,
                            state->token_file)
              : "",
      NameOption(state->name), NameOption(state->name));
  const bool shaped = options.link.up_bits_per_second + options.link.down_bits_per_second != 0;
  if (shaped && state->shaper != ToString(Shaper::kHtb)) {
    fmt::print(
        "Note: this kernel lacks htb or u32 classifiers, so acknowledgements share one queue with "
        "data and are not counted apart.\n");
  }
  return 0;
}

void AddUp(CLI::App* cluster, int* exit_code) {
  auto arguments = std::make_shared<UpArguments>();
  CLI::App* up = cluster->add_subcommand("up", "Start a coordinator and workers on this machine");
  ClusterUpOptions& options = arguments->options;
  AddName(up, &options.name);
  up->add_option("--workers", options.workers, "How many workers")
      ->capture_default_str()
      ->check(CLI::Range(1u, kMaxClusterWorkers));
  AddWorkerDevices(up, &options.device);
  up->add_option("--devices-per-worker", options.devices_per_worker,
                 "Devices of each worker, for runs whose stages are shared by a group of ranks "
                 "(group.tensor); on the CPU they share its cores and memory")
      ->capture_default_str()
      ->check(CLI::Range(1u, kMaxDevicesPerWorker));
  up->add_option("--python-codec", options.python_codecs,
                 "Modules of Python whose classes the workers may run as codecs, "
                 "python:MODULE:CLASS, with commas between; searched in the current folder first")
      ->type_name("MODULE,...");
  arguments->link.Add(up);
  up->add_option("--topology", arguments->topology_file,
                 "A file with regions of workers and what lies between them: a run file with the "
                 "key topology, or that key alone")
      ->type_name("FILE");
  up->add_option("--delay-by", arguments->delay_by,
                 "Who makes delay, jitter and loss: netem (the kernel) or relay (a process of the "
                 "cluster). Default: netem where the kernel has it")
      ->check(CLI::IsMember({"netem", "relay"}));
  up->add_option("--dir", options.directory,
                 "Folder for logs, checkpoints and the coordinator's store. A folder named here "
                 "outlives the cluster; without, it is under /var/tmp and `down` removes it");
  up->add_option("--log-level", options.log_level, "Log level of the daemons")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}));
  up->add_option("--timeout", arguments->timeout, "How long to wait until all are connected")
      ->capture_default_str()
      ->check(TimeValidator());
  up->add_flag("--insecure", options.insecure,
               "Daemons without TLS and certificates, with one token for all");
  up->add_option("--coordinator-program", options.coordinator_program,
                 "The coordinator daemon, where it is not beside this program");
  up->add_option("--worker-program", options.worker_program,
                 "The worker daemon, where it is not beside this program");
  up->callback([arguments, exit_code] { *exit_code = RunUp(*arguments); });
}

void AddDown(CLI::App* cluster, int* exit_code) {
  auto name = std::make_shared<std::string>();
  CLI::App* down = cluster->add_subcommand("down", "Stop a cluster and remove all traces of it");
  AddName(down, name.get());
  down->callback([name, exit_code] {
    const StatusOr<bool> done = ClusterDown(*name);
    if (done.ok() && *done) {
      fmt::print("Cluster '{}' is down; nothing of it is left.\n", *name);
    } else if (done.ok()) {
      fmt::print("There is no cluster '{}'; nothing to do.\n", *name);
    }
    *exit_code = Finish(done.status());
  });
}

void AddStatus(CLI::App* cluster, int* exit_code) {
  struct Arguments {
    std::string name;
    bool json = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* status =
      cluster->add_subcommand("status", "Daemons, links, and the bytes that went over them");
  AddName(status, &arguments->name);
  status->add_flag("--json", arguments->json, "One JSON document instead of a table");
  status->callback([arguments, exit_code] {
    const StatusOr<ClusterView> view = ObserveCluster(arguments->name);
    if (view.ok()) {
      fmt::print("{}", arguments->json ? FormatClusterJson(*view) : FormatClusterTable(*view));
    }
    *exit_code = Finish(view.status());
  });
}

struct ChangeArguments {
  std::string name;
  LinkChange change;
  LinkArguments link;
  bool cut = false;
  bool mended = false;
};

// The change that was asked for; throws what CLI11 shows as wrong usage.
LinkChange ChangeOf(const ChangeArguments& arguments) {
  LinkChange change = arguments.change;
  arguments.link.Put(&change);
  if (arguments.cut || arguments.mended) change.connected = arguments.mended;
  if (arguments.link.Empty() && !change.connected) {
    throw CLI::RequiredError(
        "one of --rate, --up-rate, --down-rate, --delay, --jitter, --loss, --down and --up");
  }
  if (change.to.empty()) return change;
  if (!arguments.link.up_rate.empty() || !arguments.link.down_rate.empty()) {
    throw CLI::ValidationError(
        "what one worker sends to another (--to) has one rate: --rate, not --up-rate or "
        "--down-rate; name the two workers the other way round for what comes back");
  }
  if (change.connected) {
    throw CLI::ValidationError("--to cannot be cut alone; --down cuts all of a worker's link");
  }
  change.down_bits_per_second.reset();
  return change;
}

void AddLink(CLI::App* cluster, int* exit_code) {
  auto arguments = std::make_shared<ChangeArguments>();
  CLI::App* link = cluster->add_subcommand("link", "Change a worker's link while it runs");
  link->add_option("WORKER", arguments->change.worker, "worker1, worker2, ... or all")->required();
  AddName(link, &arguments->name);
  link->add_option("--to", arguments->change.to,
                   "Only what WORKER sends to this worker: at most --rate, and with a --delay, "
                   "--jitter and --loss of its own")
      ->type_name("WORKER");
  arguments->link.Add(link);
  CLI::Option* down = link->add_flag("--down", arguments->cut, "Cut the link, silently");
  link->add_flag("--up", arguments->mended, "Mend it again")->excludes(down);
  link->callback([arguments, exit_code] {
    *exit_code = Finish(ChangeLinks(arguments->name, {ChangeOf(*arguments)}));
  });
}

// Not for people: `up` and `link` start it.
void AddRelay(CLI::App* cluster, int* exit_code) {
  auto socket = std::make_shared<std::string>();
  CLI::App* relay =
      cluster->add_subcommand("relay", "What a cluster's packets go through")->group("");
  relay->add_option("--socket", *socket, "Where it is told what to do")->required();
  relay->callback([socket, exit_code] { *exit_code = Finish(relay::RunRelay(*socket)); });
}

void AddKillAndStart(CLI::App* cluster, int* exit_code) {
  struct Arguments {
    std::string name;
    std::string daemon;
    std::string timeout = "60s";
  };
  auto killed = std::make_shared<Arguments>();
  CLI::App* kill = cluster->add_subcommand("kill", "Kill a daemon at once (kill -9), as a test");
  kill->add_option("DAEMON", killed->daemon, "worker1, worker2, ..., coordinator or relay")
      ->required();
  AddName(kill, &killed->name);
  kill->callback(
      [killed, exit_code] { *exit_code = Finish(KillDaemon(killed->name, killed->daemon)); });

  auto started = std::make_shared<Arguments>();
  CLI::App* start =
      cluster->add_subcommand("start", "Start a daemon that died, with the state it had");
  start->add_option("DAEMON", started->daemon, "worker1, worker2, ..., coordinator or relay")
      ->required();
  AddName(start, &started->name);
  start->add_option("--timeout", started->timeout, "How long to wait until it is connected")
      ->capture_default_str()
      ->check(TimeValidator());
  start->callback([started, exit_code] {
    *exit_code =
        Finish(RestartDaemon(started->name, started->daemon, *ParseDuration(started->timeout)));
  });
}

}  // namespace

void AddWorkerDevices(CLI::App* command, std::string* device) {
  command
      ->add_option("--device", *device,
                   "What workers compute on: cpu, cuda (each a GPU of its own, worker1 the first), "
                   "cuda:0-3 (these in turn) or cuda:N (all that one)")
      ->capture_default_str()
      ->check([](const std::string& text) {
        return std::string(Message(ShareDevices(text, 1).status()));
      });
}

CLI::App* AddClusterCommand(CLI::App& app, int* exit_code) {
  CLI::App* cluster = app.add_subcommand(
      "cluster", "A local cluster for trying things: workers in network namespaces, shaped links");
  cluster->require_subcommand(1);
  cluster->footer(
      "  longhaul cluster up --workers 4 --rate 10mbit   start it; other commands then find it\n"
      "  longhaul cluster up --rate 100mbit --delay 25ms a wide area\n"
      "  longhaul cluster link worker2 --down            cut a link; --up mends it\n"
      "  longhaul cluster link worker1 --to worker3 --rate 20mbit --delay 80ms\n"
      "  longhaul cluster down                           remove it; nothing is left\n"
      "Needs root (sudo), for network namespaces.");
  AddUp(cluster, exit_code);
  AddDown(cluster, exit_code);
  AddStatus(cluster, exit_code);
  AddLink(cluster, exit_code);
  AddKillAndStart(cluster, exit_code);
  AddRelay(cluster, exit_code);
  return cluster;
}

}  // namespace longhaul
