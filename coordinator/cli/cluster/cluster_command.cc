#include "coordinator/cli/cluster/cluster_command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/units.h"
#include "coordinator/cli/cluster/cluster.h"
#include "coordinator/cli/cluster/cluster_status.h"
#include "coordinator/cli/cluster/network.h"
#include "coordinator/cli/cluster/shaping.h"

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

// --delay, --jitter and --loss: known, so that the answer can say more than "unknown option".
void RefuseDelay(CLI::App* command) {
  for (const char* flag : {"--delay", "--jitter", "--loss"}) {
    command
        ->add_option_function<std::string>(
            flag,
            [flag](const std::string&) {
              throw CLI::ValidationError(
                  fmt::format("{} is not available in this version: links of a local cluster have "
                              "a rate (--rate) and can be cut (--down), no more",
                              flag));
            })
        ->group("");
  }
}

std::string NameOption(const std::string& name) {
  return name == kDefaultClusterName ? "" : " --name " + name;
}

struct UpArguments {
  ClusterUpOptions options;
  std::string rate = "unlimited";
  std::string timeout = "60s";
};

int RunUp(UpArguments arguments) {
  arguments.options.rate_bits_per_second = *ParseLinkRate(arguments.rate);
  arguments.options.patience = *ParseDuration(arguments.timeout);
  const StatusOr<ClusterState> state = ClusterUp(arguments.options);
  if (!state.ok()) return Finish(state.status());
  const uint64_t rate = arguments.options.rate_bits_per_second;
  const bool several = state->name != kDefaultClusterName;
  fmt::print(
      "Cluster '{}' is up: {} workers connected, links {}.\n"
      "Next: longhaul {}submit RUN.yaml --watch   (then: longhaul cluster status{}, longhaul "
      "cluster down{})\n",
      state->name, state->workers.size(),
      rate == 0 ? "not shaped" : fmt::format("of {} each way", FormatLinkRate(rate)),
      several ? fmt::format("--coordinator {} --token-file {} ", state->coordinator_address,
                            state->token_file)
              : "",
      NameOption(state->name), NameOption(state->name));
  if (rate != 0 && state->shaper != ToString(Shaper::kHtb)) {
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
  up->add_option("--rate", arguments->rate,
                 "Rate of every worker's link, each way (10mbit, 1gbit), or unlimited")
      ->capture_default_str()
      ->check(RateValidator());
  up->add_option("--dir", options.directory,
                 "Folder for logs, checkpoints and the coordinator's store. A folder named here "
                 "outlives the cluster; without, it is under /var/tmp and `down` removes it");
  up->add_option("--log-level", options.log_level, "Of the daemons")
      ->capture_default_str()
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}));
  up->add_option("--timeout", arguments->timeout, "How long to wait until all are connected")
      ->capture_default_str()
      ->check(TimeValidator());
  up->add_option("--coordinator-program", options.coordinator_program,
                 "The coordinator daemon, where it is not beside this program");
  up->add_option("--worker-program", options.worker_program,
                 "The worker daemon, where it is not beside this program");
  RefuseDelay(up);
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

void AddLink(CLI::App* cluster, int* exit_code) {
  struct Arguments {
    std::string name;
    LinkChange change;
    std::string rate;
    bool down = false;
    bool up = false;
  };
  auto arguments = std::make_shared<Arguments>();
  CLI::App* link = cluster->add_subcommand("link", "Change a worker's link while it runs");
  link->add_option("WORKER", arguments->change.worker, "worker1, worker2, ... or all")->required();
  AddName(link, &arguments->name);
  CLI::Option* rate =
      link->add_option("--rate", arguments->rate, "A new rate, each way (5mbit), or unlimited")
          ->check(RateValidator());
  CLI::Option* down = link->add_flag("--down", arguments->down, "Cut the link, silently");
  CLI::Option* up = link->add_flag("--up", arguments->up, "Mend it again")->excludes(down);
  RefuseDelay(link);
  link->callback([arguments, rate, down, up, exit_code] {
    LinkChange& change = arguments->change;
    change.set_rate = rate->count() > 0;
    change.set_up = down->count() + up->count() > 0;
    change.up = arguments->up;
    if (!change.set_rate && !change.set_up) {
      throw CLI::RequiredError("one of --rate, --down and --up");
    }
    if (change.set_rate) change.rate_bits_per_second = *ParseLinkRate(arguments->rate);
    *exit_code = Finish(ChangeLink(arguments->name, change));
  });
}

void AddKillAndStart(CLI::App* cluster, int* exit_code) {
  struct Arguments {
    std::string name;
    std::string daemon;
    std::string timeout = "60s";
  };
  auto killed = std::make_shared<Arguments>();
  CLI::App* kill = cluster->add_subcommand("kill", "Kill a daemon at once (kill -9), as a test");
  kill->add_option("DAEMON", killed->daemon, "worker1, worker2, ... or coordinator")->required();
  AddName(kill, &killed->name);
  kill->callback(
      [killed, exit_code] { *exit_code = Finish(KillDaemon(killed->name, killed->daemon)); });

  auto started = std::make_shared<Arguments>();
  CLI::App* start =
      cluster->add_subcommand("start", "Start a daemon that died, with the state it had");
  start->add_option("DAEMON", started->daemon, "worker1, worker2, ... or coordinator")->required();
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

CLI::App* AddClusterCommand(CLI::App& app, int* exit_code) {
  CLI::App* cluster = app.add_subcommand(
      "cluster", "A local cluster for trying things: workers in network namespaces, shaped links");
  cluster->require_subcommand(1);
  cluster->footer(
      "  longhaul cluster up --workers 4 --rate 10mbit   start it; other commands then find it\n"
      "  longhaul cluster link worker2 --down            cut a link; --up mends it\n"
      "  longhaul cluster down                           remove it; nothing is left\n"
      "Needs root (sudo), for network namespaces.");
  AddUp(cluster, exit_code);
  AddDown(cluster, exit_code);
  AddStatus(cluster, exit_code);
  AddLink(cluster, exit_code);
  AddKillAndStart(cluster, exit_code);
  return cluster;
}

}  // namespace longhaul
