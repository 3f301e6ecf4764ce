// The program `longhaul`: its commands that talk to a coordinator, and the parts that all commands
// share.
//
//   Program program(ProcessTerminal(), ClustersOfThisMachine());  // deploy/local_commands.h
//   AddLocalCommands(program);
//   return program.Run(argc, argv);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/client.h"
#include "cli/interrupt.h"
#include "cli/terminal.h"

// Only declared here: files that add options include <CLI/CLI.hpp>, which takes seconds to compile.
namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace longhaul::cli {

// Exit codes of the program.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kWrongUsage = 2;
inline constexpr int kInterrupted = 130;  // ended by Ctrl-C

// One running command. Threads: one.
class Invocation {
 public:
  // `terminal` and `clusters` must outlive this object.
  Invocation(const Terminal& terminal, const LocalClusters& clusters, ClientFlags flags, bool json)
      : terminal_(terminal), clusters_(clusters), flags_(std::move(flags)), json_(json) {}

  const Terminal& terminal() const { return terminal_; }
  const LocalClusters& clusters() const { return clusters_; }
  bool json() const { return json_; }
  Interrupt& interrupt() { return interrupt_; }
  // Returns the client, which lives as long as this object. The first call finds the coordinator
  // and makes the connection. Errors: those of FindCoordinator and Client::Open.
  StatusOr<Client*> Connect();
  // Calls the coordinator: Connect, then Client::Get.
  template <class Service, class Request, class Reply>
  StatusOr<Reply> Get(grpc::Status (Service::*method)(grpc::ClientContext*, const Request&, Reply*),
                      const Request& request, absl::Duration limit = absl::Seconds(30)) {
    LH_ASSIGN_OR_RETURN(Client* const client, Connect());
    return client->Get(method, request, limit);
  }
  // Write `message` as JSON to standard output: as one document, or as one line of a stream.
  void PrintJson(const google::protobuf::Message& message);
  void PrintJsonLine(const google::protobuf::Message& message);
  // Prints a reply: `message` with --json, else `text`. Returns kDone.
  int PrintReply(const google::protobuf::Message& message, std::string_view text);

 private:
  const Terminal& terminal_;
  const LocalClusters& clusters_;
  const ClientFlags flags_;
  const bool json_;
  Interrupt interrupt_;
  std::unique_ptr<Client> client_;
};

// Returns the program's exit code, or the error that ended the command.
using CommandBody = std::function<StatusOr<int>(Invocation& invocation)>;

// A command, and the options that its flags set before its body runs.
template <class Options>
struct CommandAndOptions {
  CLI::App* command;
  Options* options;
};

class Program {
 public:
  Program(Terminal terminal, LocalClusters clusters);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Parses the arguments, runs the command, and returns the program's exit code: kFailed if the
  // output could not be written. Call it once, on the main thread.
  int Run(int argc, const char* const* argv);

  // For files that add commands: adds a command with --coordinator, --token-file, --insecure and
  // --json. Users may also write these flags before the command. `body` runs the command. If it
  // returns an error, the program prints the message and exits with 1, or 130 after Ctrl-C. The
  // returned command belongs to this object.
  CLI::App* AddCommand(const std::string& name, const std::string& description, CommandBody body);
  // Adds a subcommand. When a user gives it, the parent's own body does not run.
  CLI::App* AddCommand(CLI::App* parent, const std::string& name, const std::string& description,
                       CommandBody body);
  // The same for a body with options, which live as long as the program.
  template <class Options>
  CommandAndOptions<Options> AddCommand(CLI::App* parent, const std::string& name,
                                        const std::string& description,
                                        StatusOr<int> (*body)(Invocation&, const Options&)) {
    const auto options = std::make_shared<Options>();
    CLI::App* const command =
        AddCommand(parent, name, description,
                   [options, body](Invocation& invocation) { return body(invocation, *options); });
    return {command, options.get()};
  }
  template <class Options>
  CommandAndOptions<Options> AddCommand(const std::string& name, const std::string& description,
                                        StatusOr<int> (*body)(Invocation&, const Options&)) {
    return AddCommand(app_.get(), name, description, body);
  }

  // For other libraries: they add commands to app(), and these commands store their exit codes in
  // *exit_code(). Both live as long as this object.
  CLI::App& app() { return *app_; }
  int* exit_code() { return &exit_code_; }
  // Makes --coordinator, --token-file and --insecure before `command` a usage error. With
  // `json_too` also --json.
  void RefuseConnectionFlags(CLI::App* command, bool json_too);

 private:
  struct CommonFlags {
    ClientFlags client;
    bool json = false;
  };
  static std::vector<CLI::Option*> AddCommonFlags(CLI::App* app, CommonFlags& flags);
  int RunCommand(int argc, const char* const* argv);
  // Says that standard output cannot be written. Returns the exit code.
  int OutputIsLost();

  Terminal terminal_;
  const LocalClusters clusters_;
  const std::unique_ptr<CLI::App> app_;
  CommonFlags before_, after_;  // flags before and after the command; the latter win
  std::vector<CLI::Option*> flags_before_;
  int exit_code_ = kDone;
};

// Adds the argument RUN, the run that a command is about.
void AddRunArgument(CLI::App* command, std::string* run);

void AddSubmitCommands(Program& program);      // submit, plan
void AddKeysCommand(Program& program);         // keys
void AddWatchCommand(Program& program);        // watch
void AddRunCommands(Program& program);         // ps, status, stop, replicas
void AddStepsCommand(Program& program);        // steps
void AddCleanupCommands(Program& program);     // rm, gc
void AddCheckpointsCommand(Program& program);  // checkpoints
void AddExportCommand(Program& program);       // export
void AddStreamCommands(Program& program);      // logs, events
void AddTraceCommand(Program& program);        // trace
void AddWorkersCommand(Program& program);      // workers
void AddMembersCommands(Program& program);     // members, token
void AddAuditCommand(Program& program);        // audit
void AddDashboardCommand(Program& program);    // dashboard-key
void AddLeadCommand(Program& program);         // lead

}  // namespace longhaul::cli
