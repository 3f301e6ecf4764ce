#include "cli/program.h"

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ios>
#include <string>
#include <utility>

#include "base/address.h"
#include "base/flags/command_line.h"
#include "base/printable.h"
#include "coordinator/view/json.h"

namespace longhaul::cli {
namespace {

constexpr char kDescription[] =
    "Trains language models by pipeline parallelism over slow links.\n\n"
    "  longhaul cluster up --workers 4 --rate 100mbit   a cluster on this machine\n"
    "  longhaul submit run.yaml --watch                 train\n"
    "  longhaul ps                                      what runs";
constexpr char kFooter[] =
    "The coordinator is found by --coordinator and --token-file, else by the variables\n"
    "LONGHAUL_COORDINATOR and LONGHAUL_TOKEN_FILE, else it is that of the local cluster.\n"
    "Where several addresses are given, as in a:7070,b:7070, the first that serves is taken.\n"
    "A join token is needed once: the certificate that it brings is kept in LONGHAUL_HOME\n"
    "(default: ~/.config/longhaul).\n"
    "Tables go to a terminal, tab-separated lines to a pipe, JSON with --json.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

}  // namespace

StatusOr<Client*> Invocation::Connect() {
  if (client_ == nullptr) {
    LH_ASSIGN_OR_RETURN(CoordinatorAccess access, FindCoordinator(flags_, clusters_));
    LH_ASSIGN_OR_RETURN(client_, Client::Open(std::move(access), interrupt_));
  }
  return client_.get();
}

void Invocation::PrintJson(const google::protobuf::Message& message) {
  terminal_.out << ToJson(message, /*indented=*/true) << '\n';
}

void Invocation::PrintJsonLine(const google::protobuf::Message& message) {
  terminal_.out << ToJson(message, /*indented=*/false) << std::endl;
}

int Invocation::PrintReply(const google::protobuf::Message& message, std::string_view text) {
  if (json_) {
    PrintJson(message);
  } else {
    terminal_.out << PrintableLines(text) << '\n';
  }
  return kDone;
}

Program::~Program() = default;

Program::Program(Terminal terminal, LocalClusters clusters)
    : terminal_(std::move(terminal)),
      clusters_(std::move(clusters)),
      app_(std::make_unique<CLI::App>(kDescription, "longhaul")) {
  app_->require_subcommand(1);
  app_->footer(kFooter);
  SetUpCommandLine(*app_);
  flags_before_ = AddCommonFlags(app_.get(), before_);
  app_->get_formatter()->column_width(34);
  AddSubmitCommands(*this);
  AddKeysCommand(*this);
  AddWatchCommand(*this);
  AddRunCommands(*this);
  AddStepsCommand(*this);
  AddCleanupCommands(*this);
  AddCheckpointsCommand(*this);
  AddExportCommand(*this);
  AddTraceCommand(*this);
  AddStreamCommands(*this);
  AddWorkersCommand(*this);
  AddMembersCommands(*this);
  AddAuditCommand(*this);
  AddDashboardCommand(*this);
  AddLeadCommand(*this);
}

void Program::RefuseConnectionFlags(CLI::App* command, bool json_too) {
  for (CLI::Option* option : flags_before_) {
    if (json_too || option->get_name() != "--json") command->excludes(option);
  }
}

std::vector<CLI::Option*> Program::AddCommonFlags(CLI::App* app, CommonFlags& flags) {
  const CLI::Validator address(
      [](const std::string& text) {
        return text.empty() ? "" : std::string(Message(ParseAddressList(text).status()));
      },
      "");
  return {app->add_option("--coordinator", flags.client.coordinator,
                          "The coordinator's address, and with a comma between its standby's; else "
                          "LONGHAUL_COORDINATOR, else the local cluster")
              ->type_name("HOST:PORT,...")
              ->check(address),
          app->add_option("--token-file", flags.client.token_file,
                          "File with a join token (with --insecure: the coordinator's token); else "
                          "LONGHAUL_TOKEN_FILE, else the local cluster's")
              ->type_name("FILE"),
          app->add_flag("--insecure", flags.client.insecure,
                        "Plain TCP to a coordinator that was started with --insecure; else "
                        "LONGHAUL_INSECURE=1"),
          app->add_flag("--json", flags.json,
                        "Print JSON: one document, or one object a line where it streams")};
}

CLI::App* Program::AddCommand(const std::string& name, const std::string& description,
                              CommandBody body) {
  return AddCommand(app_.get(), name, description, std::move(body));
}

CLI::App* Program::AddCommand(CLI::App* parent, const std::string& name,
                              const std::string& description, CommandBody body) {
  CLI::App* command = parent->add_subcommand(name, description);
  AddCommonFlags(command, after_);
  command->callback([this, command, body = std::move(body)] {
    if (!command->get_subcommands().empty()) return;
    const auto either = [](const std::string& after, const std::string& before) {
      return after.empty() ? before : after;
    };
    const ClientFlags flags{either(after_.client.coordinator, before_.client.coordinator),
                            either(after_.client.token_file, before_.client.token_file),
                            after_.client.insecure || before_.client.insecure};
    Invocation invocation(terminal_, clusters_, flags, after_.json || before_.json);
    const StatusOr<int> result = body(invocation);
    terminal_.out.flush();
    if (result.ok()) {
      exit_code_ = *result;
      return;
    }
    exit_code_ = invocation.interrupt().fired() ? kInterrupted : kFailed;
    terminal_.err << PrintableLines(Message(result.status())) << std::endl;
  });
  return command;
}

int Program::Run(int argc, const char* const* argv) {
  try {
    const int code = RunCommand(argc, argv);
    // What nobody could write is lost, and the command has failed. Some commands print through
    // stdio.
    terminal_.out.flush();
    if (terminal_.out && std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return OutputIsLost();
  } catch (const std::ios_base::failure&) {
    return OutputIsLost();
  } catch (const std::exception& error) {
    terminal_.err << "longhaul failed: " << error.what() << std::endl;
    return kFailed;
  }
}

int Program::RunCommand(int argc, const char* const* argv) {
  if (argc == 1) {
    terminal_.err << app_->help();
    return kWrongUsage;
  }
  try {
    app_->parse(argc, argv);
    return exit_code_;
  } catch (const CLI::ParseError& error) {
    return app_->exit(error, terminal_.out, terminal_.err) == 0 ? kDone : kWrongUsage;
  }
}

int Program::OutputIsLost() {
  const int error = errno;
  // The stream is flushed once more when the process ends, where nothing may throw.
  terminal_.out.exceptions(std::ios_base::goodbit);
  // The reader of a pipe that ends early, such as head, wants no more.
  if (error != EPIPE) {
    terminal_.err << "longhaul: the output cannot be written"
                  << (error == 0 ? "" : std::string(": ") + std::strerror(error)) << std::endl;
  }
  return kFailed;
}

void AddRunArgument(CLI::App* command, std::string* run) {
  command->add_option("RUN", *run, "The run's id, or a name: its newest run")->required();
}

}  // namespace longhaul::cli
