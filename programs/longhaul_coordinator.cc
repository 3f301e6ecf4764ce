// longhaul-coordinator: plans runs and watches over the workers.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/address.h"
#include "base/flags/command_line.h"
#include "base/flags/daemon_config.h"
#include "base/flags/metrics_flags.h"
#include "base/log.h"
#include "base/machine.h"
#include "base/peer_log.h"
#include "base/private_files.h"
#include "base/remote/settings.h"
#include "base/shutdown.h"
#include "base/status.h"
#include "base/token.h"
#include "base/units.h"
#include "base/version.h"
#include "base/watchdog.h"
#include "coordinator/rpc/metrics_page.h"
#include "coordinator/rpc/server.h"
#include "coordinator/standby/follower.h"
#include "coordinator/standby/leadership.h"
#include "coordinator/state/ledger/stage_record.h"
#include "coordinator/state/ledger/transitions.h"
#include "coordinator/state/member_limits.h"
#include "coordinator/store/backup.h"
#include "proto/identity/join_token.h"
#include "proto/identity/session_tickets.h"
#include "proto/rpc/channel.h"
#include "proto/witness/hosted.h"

namespace longhaul::coordinator {
namespace {

enum ExitCode { kOk = 0, kFailed = 1, kWrongUsage = 2 };

// An orderly end takes less than two seconds, whatever the streams do.
constexpr absl::Duration kStopLimit = absl::Seconds(1);
// How soon a failure of the store is noticed.
constexpr absl::Duration kFailureCheck = absl::Milliseconds(500);
// How soon a standby begins to serve once it has to.
constexpr absl::Duration kStandbyCheck = absl::Milliseconds(50);

struct Flags {
  std::string listen = "127.0.0.1:7070";
  std::string state_dir;
  std::string token_file;
  std::string worker_token_file;
  MetricsFlags metrics;
  bool insecure = false;
  std::string http, http_certificate, http_key;
  std::string reports;
  std::string relay;
  std::string relay_advertise;
  double certificate_hours = absl::ToDoubleHours(kDefaultLifetime);
  double members_kept_days = absl::ToDoubleHours(kMembersKept) / 24;
  std::string log_level = "info";
  double progress_timeout_seconds = 120;
  bool dump_states = false;
  std::string standby_of;
  std::string peer;
  std::string witness_of;
  std::string witness_name;
  bool force = false;
  std::string user_bytes;
  size_t user_runs = kMaxRuns.of_member;
  bool allow_hooks = false;
};

int Fail(const Status& status) {
  fmt::print(stderr, "longhaul-coordinator: {}\n", Message(status));
  return kFailed;
}

int WrongUsage(std::string_view problem) {
  fmt::print(stderr, "longhaul-coordinator: {}\n", problem);
  return kWrongUsage;
}

StatusOr<ServerOptions> OptionsOf(const Flags& flags) {
  ServerOptions options;
  options.listen = flags.listen;
  options.state_dir = flags.state_dir;
  options.state.version = std::string(Version());
  options.state.machine = MachineId();
  options.state.progress_timeout = absl::Seconds(flags.progress_timeout_seconds);
  options.state.allow_hooks = flags.allow_hooks;
  options.insecure = flags.insecure;
  LH_ASSIGN_OR_RETURN(options.metrics, OptionsOf(flags.metrics));
  options.relay = flags.relay;
  options.relay_advertise = flags.relay_advertise;
  options.token_file = flags.token_file;
  options.worker_token_file = flags.worker_token_file;
  options.http = flags.http;
  options.http_certificate = flags.http_certificate;
  options.http_key = flags.http_key;
  options.reports = flags.reports;
  options.certificate_lifetime = absl::Hours(flags.certificate_hours);
  options.members_kept = absl::Hours(24 * flags.members_kept_days);
  options.claim = flags.force ? Claim::kForce : Claim::kOwn;
  options.state.limits.runs.of_member = flags.user_runs;
  if (!flags.user_bytes.empty()) {
    LH_ASSIGN_OR_RETURN(options.state.limits.blob_bytes, ParseBytes(flags.user_bytes));
  }
  if (flags.insecure && !flags.token_file.empty()) {
    LH_ASSIGN_OR_RETURN(options.token, LoadToken(flags.token_file));
    if (IsJoinToken(options.token)) {
      return FailedPrecondition(
          "{} holds a join token, which is for TLS; leave --insecure out, or give "
          "another token file",
          flags.token_file);
    }
  }
  return options;
}

int Init(const ServerOptions& options) {
  const StatusOr<std::vector<std::string>> made = InitState(options);
  if (!made.ok()) return Fail(made.status());
  for (const std::string& sentence : *made) fmt::print("{}\n", sentence);
  if (made->empty()) fmt::print("all is there already\n");
  return kOk;
}

int RotateKey(const ServerOptions& options, const std::string& overlap) {
  const StatusOr<absl::Duration> duration = ParseDuration(overlap);
  if (!duration.ok()) return WrongUsage(fmt::format("--overlap: {}", Message(duration.status())));
  const StatusOr<std::vector<std::string>> said = RotateAuthority(options, absl::Now() + *duration);
  if (!said.ok()) return Fail(said.status());
  for (const std::string& sentence : *said) fmt::print("{}\n", sentence);
  return kOk;
}

// What `backup` and `restore` have done, in a sentence.
int SayDone(const StatusOr<BackedUp>& done, std::string_view what) {
  if (!done.ok()) return Fail(done.status());
  fmt::print("{}: {} runs, {} blobs ({})\n", what, done->runs, done->blobs,
             FormatBytes(static_cast<double>(done->blob_bytes)));
  return kOk;
}

// Workers may have obeyed coordinators of which a backup knows nothing.
StatusOr<BackedUp> RestoreAndLead(const std::string& folder, const std::string& state_dir) {
  StatusOr<BackedUp> done = Restore(folder, state_dir);
  if (!done.ok()) return done;
  LeadershipRecord record = NewLeadership();
  record.seat.term = TermOfForce(/*known=*/0, absl::Now());
  LH_RETURN_IF_ERROR(WriteLeadership(state_dir, record));
  return done;
}

// Replaces this process by a new one of the same program, which begins as the state directory says
// now. Returns only if that fails.
int BeginAnew(char** arguments) {
  FlushLog();
  ::execv("/proc/self/exe", arguments);
  return Fail(FromErrno("cannot start this program anew", errno));
}

// `arguments`: of this process. `follows`: it begins anew as a follower when another coordinator
// leads; else it ends.
int Serve(ServerOptions options, char** arguments, bool follows) {
  // The credentials of this machine for object stores stay here: workers get signed addresses.
  StatusOr<remote::Settings> objects = remote::FindSettings();
  if (!objects.ok()) {
    // Runs that need none of them go on, and a standby takes over.
    LogWarning("credentials of hubs and object stores are not used: {}", Message(objects.status()));
    objects = remote::FindSettings(remote::WithoutCredentials(remote::ProcessEnvironment()));
  }
  if (!objects.ok()) return Fail(objects.status());
  options.objects = *std::move(objects);
  StatusOr<std::unique_ptr<CoordinatorServer>> started = CoordinatorServer::Start(options);
  if (!started.ok()) return Fail(started.status());
  if (options.insecure) {
    LogWarning(
        "INSECURE: this coordinator talks without encryption (--insecure); whoever sees its "
        "traffic has its token");
  }
  CoordinatorServer& server = **started;
  fmt::print("listening on {}\n", server.address());
  if (const std::string url = server.dashboard_url(); !url.empty()) {
    fmt::print("dashboard at {}\n", url);
  }
  std::fflush(stdout);
  NotifySystemd("READY=1");

  int signal = 0;
  while (signal == 0 && server.failure().ok()) {
    signal = WaitForShutdownSignal(kFailureCheck);
    LogWhatWasLeftOut();
  }
  const Status failure = server.failure();
  if (failure.ok()) LogInfo("signal {}: shutting down", signal);
  const int exit_code = failure.ok() ? kOk : Fail(failure);
  if (signal == 0 && (server.begins_anew() || (follows && server.stepped_down()))) {
    // Nothing of the old term may go on: a new process has no thread of it.
    server.Stop(kStopLimit);
    return BeginAnew(arguments);
  }
  if (!server.Stop(kStopLimit)) {
    // Tokenizing cannot be interrupted; the next start does it again.
    LogInfo("something was still under way; data that were being prepared will be so again");
    FlushLog();
    std::_Exit(exit_code);
  }
  return exit_code;
}

// Follows the other coordinator until this one is elected, and serves then.
int Follow(const Flags& flags, const std::string& peer, ServerOptions options, char** arguments) {
  FollowerOptions following{.peer = peer,
                            .listen = options.listen,
                            .state_dir = options.state_dir,
                            .token_file = options.token_file,
                            .version = options.state.version};
  const std::string own_token = options.state_dir + "/token";
  if (following.token_file.empty() && ::access(own_token.c_str(), F_OK) == 0) {
    following.token_file = own_token;
  }
  StatusOr<std::unique_ptr<Follower>> follower = Follower::Start(following);
  if (!follower.ok()) return Fail(follower.status());
  fmt::print("standby of {}\n", peer);
  std::fflush(stdout);
  NotifySystemd("READY=1");
  int signal = 0;
  while (signal == 0 && !options.elected) {
    signal = WaitForShutdownSignal(kStandbyCheck);
    LogWhatWasLeftOut();
    options.elected = (*follower)->elected();
  }
  follower->reset();
  if (signal != 0) {
    LogInfo("signal {}: shutting down", signal);
    return kOk;
  }
  LogWarning("taking over from {}", peer);
  options.peer = peer;
  const bool knows_peer = !flags.peer.empty() || !flags.standby_of.empty();
  return Serve(std::move(options), arguments, knows_peer);
}

// Leads, or follows the other coordinator, as the state directory says.
int LeadOrFollow(const Flags& flags, ServerOptions options, char** arguments) {
  const std::string wanted = flags.peer.empty() ? flags.standby_of : flags.peer;
  const bool alone = flags.insecure || flags.force;
  if (!alone) {
    const StatusOr<std::string> peer = CoordinatorToFollow(
        options.state_dir, wanted, /*prefers_to_follow=*/!flags.standby_of.empty());
    if (!peer.ok()) return Fail(peer.status());
    if (!peer->empty()) return Follow(flags, *peer, std::move(options), arguments);
  }
  options.peer = wanted;
  return Serve(std::move(options), arguments, !wanted.empty());
}

// Takes part when two coordinators decide who leads.
int Witness(const Flags& flags) {
  if (flags.witness_of.empty()) {
    return WrongUsage("witness needs --coordinator HOST:PORT,HOST:PORT");
  }
  const witness::Options options{
      .coordinators = absl::StrSplit(flags.witness_of, ',', absl::SkipEmpty()),
      .state_dir = flags.state_dir,
      .token_file = flags.token_file,
      .name = flags.witness_name,
      .version = std::string(Version())};
  witness::HostedWitness witness(options);
  fmt::print("witness of {}\n", flags.witness_of);
  std::fflush(stdout);
  NotifySystemd("READY=1");
  int signal = 0;
  while (signal == 0 && witness.failure().ok()) {
    signal = WaitForShutdownSignal(kFailureCheck);
    LogWhatWasLeftOut();
  }
  if (const Status failure = witness.failure(); !failure.ok()) return Fail(failure);
  LogInfo("signal {}: shutting down", signal);
  return kOk;
}

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("--listen", flags.listen,
                 "host:port to serve workers and the CLI at; port 0 takes any free one")
      ->capture_default_str();
  app.add_option("--state-dir", flags.state_dir,
                 "folder for runs, uploaded data and token files; made where it is missing");
  app.add_option(
      "--token-file", flags.token_file,
      "file that gets a join token for admins where it is missing; default: token in the "
      "state directory. With --insecure: the file whose first line workers and the CLI "
      "have to know");
  app.add_option("--worker-token-file", flags.worker_token_file,
                 "file that gets a join token for workers where it is missing; default: none, and "
                 "an admin makes them: longhaul token create");
  app.add_flag("--insecure", flags.insecure,
               "plain TCP and one token for everybody, instead of TLS and certificates; other than "
               "loopback needs --token-file");
  app.add_option(
      "--http", flags.http,
      "host:port to serve the dashboard at, e.g. 127.0.0.1:8080; on loopback everybody on this "
      "machine sees all runs, and changes need a key of `longhaul dashboard-key`; another address "
      "needs --http-certificate, and everybody a key");
  app.add_option("--http-certificate", flags.http_certificate,
                 "PEM file with the certificate that encrypts the dashboard; with --http-key");
  app.add_option("--http-key", flags.http_key, "PEM file with the key of --http-certificate");
  app.add_option("--reports", flags.reports,
                 "folder with results folders of sweeps, whose reports the dashboard links to");
  app.add_option("--certificate-hours", flags.certificate_hours,
                 "how long a member's certificate lasts; members renew theirs in time")
      ->check(CLI::Range(0.0001, 87600.0))
      ->capture_default_str();
  app.add_option("--members-kept-days", flags.members_kept_days,
                 "how long members are listed after they were revoked or their certificate ended; "
                 "then only names and keys are kept, so that none comes back")
      ->check(CLI::Range(0.0, 36500.0))
      ->capture_default_str();
  app.add_option("--relay", flags.relay,
                 "host:port to carry links at, encrypted end to end, between workers that do not "
                 "reach each other; without: it carries none");
  app.add_option("--relay-advertise", flags.relay_advertise,
                 "host:port at which workers reach the relay; default: its port at the host at "
                 "which each reaches the coordinator");
  app.add_option(
         "--progress-timeout", flags.progress_timeout_seconds,
         "seconds that a running run may stand still though its workers and links are well, "
         "and at least 20 steps; then its epoch ends")
      ->check(CLI::Range(0.1, 86400.0))
      ->capture_default_str();
  app.add_option(
      "--standby", flags.standby_of,
      "host:port of the coordinator to follow, with a copy of all that it has; if there is a "
      "witness, this one takes over when that one is gone; --token-file has a join token for "
      "admins of it");
  app.add_option("--peer", flags.peer,
                 "host:port of the other coordinator of a pair; the state directories say who of "
                 "them leads at the start, so both may be started with it");
  app.add_flag("--force", flags.force,
               "serve though the state directory is a standby's, or another coordinator has taken "
               "over, or may have; what that one has done since is lost");
  app.add_option(
      "--user-bytes", flags.user_bytes,
      "how much data each user who is no admin may have here, such as 200GiB; default: a "
      "quarter of the disk of the state directory");
  app.add_option("--user-runs", flags.user_runs,
                 "how many runs each user who is no admin may have here, those that have ended too")
      ->check(CLI::Range(size_t{1}, kMaxRuns.in_all))
      ->capture_default_str();
  app.add_flag("--allow-hooks", flags.allow_hooks,
               "run the programs that run files of admins name (hooks.on_checkpoint), as this "
               "program's user; without TLS everybody with the token counts as an admin");
  AddMetricsFlags(app, &flags.metrics, "127.0.0.1:9464");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->capture_default_str();
  app.add_flag("--dump-states", flags.dump_states,
               "print the states of a run and how they follow each other, as a Mermaid diagram");
}

// What is wrong with the flags; empty: a coordinator may serve with them.
std::string ProblemOf(const Flags& flags) {
  if (flags.state_dir.empty()) return "--state-dir is required: the folder for its records";
  const StatusOr<HostPort> listen = ParseHostPort(flags.listen);
  if (!listen.ok()) return fmt::format("--listen: {}", Message(listen.status()));
  const bool pair = !flags.standby_of.empty() || !flags.peer.empty();
  if (listen->port == 0 && pair) {
    return fmt::format(
        "--listen of one of two coordinators needs a port: the other one and the workers have to "
        "know where it is; got {}",
        flags.listen);
  }
  if (!flags.reports.empty() && flags.http.empty()) {
    return "--reports is for the dashboard; give --http, too";
  }
  if (flags.http_certificate.empty() != flags.http_key.empty()) {
    return "--http-certificate and --http-key belong together; give both";
  }
  if (!flags.http_certificate.empty() && flags.http.empty()) {
    return "--http-certificate is for the dashboard; give --http, too";
  }
  if (std::string problem = ProblemOf(flags.metrics); !problem.empty()) return problem;
  if (!flags.standby_of.empty() && !flags.peer.empty()) {
    return "--standby and --peer exclude each other: both name the other coordinator";
  }
  if (pair && flags.insecure) {
    return "--standby and --peer exclude --insecure: two coordinators know each other and their "
           "workers by certificates";
  }
  if (!flags.standby_of.empty() && flags.force) {
    return "--standby and --force exclude each other: --force serves at once, without following "
           "anybody";
  }
  if (flags.insecure && !flags.worker_token_file.empty()) {
    return "--worker-token-file and --insecure exclude each other: without TLS there is one token "
           "for all, that of --token-file";
  }
  if (!flags.user_bytes.empty()) {
    const StatusOr<uint64_t> bytes = ParseBytes(flags.user_bytes);
    if (!bytes.ok()) return fmt::format("--user-bytes: {}", Message(bytes.status()));
    if (*bytes == 0) return "--user-bytes: expected more than 0";
  }
  return ProblemOfAddresses({{"--standby", flags.standby_of},
                             {"--peer", flags.peer},
                             {"--relay", flags.relay},
                             {"--relay-advertise", flags.relay_advertise}});
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("The coordinator of longhaul: plans runs, watches over workers, keeps the records.",
               "longhaul-coordinator");
  SetUpCommandLine(app);
  AddFlags(app, flags);
  const CLI::App* const init =
      app.add_subcommand("init",
                         "make the certificate authority and a join token for admins, and end; a "
                         "start without does the same")
          ->fallthrough();
  std::string folder;
  bool with_blobs = false;
  CLI::App* const backup =
      app.add_subcommand("backup",
                         "copy the records and the authority's key into a folder, while a "
                         "coordinator serves or not, and end")
          ->fallthrough();
  backup->add_option("DIR", folder, "the folder; the newest backup replaces an older one")
      ->required();
  backup->add_flag("--blobs", with_blobs, "also uploaded data, and copies of checkpoints");
  CLI::App* const restore =
      app.add_subcommand("restore", "make a state directory out of a backup, and end")
          ->fallthrough();
  restore->add_option("DIR", folder, "the backup")->required();
  std::string overlap = "30d";
  CLI::App* const rotate =
      app.add_subcommand("rotate-authority",
                         "make a new authority, while no coordinator serves, and end; the one "
                         "before counts for a while yet")
          ->fallthrough();
  rotate
      ->add_option("--overlap", overlap,
                   "how long: 7d, 12h; 0s: no longer, and all members have to join again")
      ->capture_default_str();
  CLI::App* const witness =
      app.add_subcommand(
             "witness",
             "take part when two coordinators decide who of them leads: run it on a third machine; "
             "--token-file has a join token for witnesses")
          ->fallthrough();
  witness->add_option("--coordinator", flags.witness_of, "host:port of both, with a comma between")
      ->required();
  witness->add_option("--name", flags.witness_name, "the member's name")->default_val("witness");
  AddYamlConfig(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kOk : kWrongUsage;
  }
  if (flags.metrics.dump) {
    fmt::print("{}", metrics::ToMarkdown(PageOf(Reading())));
    return kOk;
  }
  if (flags.dump_states) {
    fmt::print("{}\n{}\n{}", DumpTransitions(), DumpPhases(), DumpPresences());
    return kOk;
  }
  if (const std::string problem = ProblemOf(flags); !problem.empty()) return WrongUsage(problem);
  if (const Status status = InitLogging(flags.log_level); !status.ok()) {
    return WrongUsage(Message(status));
  }
  RouteGrpcLog();
  LeaveOutSessionTickets();
  RaiseFileLimit();
  const Watchdog watchdog;
  if (witness->parsed()) return Witness(flags);
  const StatusOr<ServerOptions> options = OptionsOf(flags);
  if (!options.ok()) return Fail(options.status());
  if (backup->parsed()) {
    return SayDone(BackUp(flags.state_dir, folder, with_blobs), "backed up into " + folder);
  }
  if (restore->parsed()) {
    return SayDone(RestoreAndLead(folder, flags.state_dir), "restored into " + flags.state_dir);
  }
  if (rotate->parsed()) {
    if (flags.insecure) return WrongUsage("rotate-authority is for TLS; leave --insecure out");
    return RotateKey(*options, overlap);
  }
  if (!init->parsed()) return LeadOrFollow(flags, *options, argv);
  if (flags.insecure) {
    return WrongUsage("init is for TLS; leave --insecure out");
  }
  return Init(*options);
}

}  // namespace
}  // namespace longhaul::coordinator

int main(int argc, char** argv) {
  longhaul::KeepFilesPrivate();
  // gRPC's and our own threads inherit it.
  longhaul::BlockShutdownSignals();
  try {
    return longhaul::coordinator::Main(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "longhaul-coordinator: {}\n", error.what());
    return 1;
  }
}
