#include "coordinator/cli/program.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/config/nearest.h"
#include "coordinator/cli/cluster/cluster_command.h"
#include "coordinator/cli/json.h"

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
    "Tables go to a terminal, tab-separated lines to a pipe, JSON with --json.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.";

}  // namespace

StatusOr<Client*> Session::Connect() {
  if (client_ == nullptr) {
    LH_ASSIGN_OR_RETURN(Connection connection, FindCoordinator(flags_));
    client_ = std::make_unique<Client>(std::move(connection), interrupt_);
  }
  return client_.get();
}

void Session::PrintJson(const google::protobuf::Message& message) {
  terminal_.out << ToJson(message, /*indented=*/true) << '\n';
}

void Session::PrintJsonLine(const google::protobuf::Message& message) {
  terminal_.out << ToJson(message, /*indented=*/false) << std::endl;
}

Program::Program(Terminal terminal)
    : terminal_(std::move(terminal)), app_(kDescription, "longhaul") {
  app_.require_subcommand(1);
  app_.footer(kFooter);
  app_.set_version_flag("--version", std::string("longhaul " LONGHAUL_VERSION));
  app_.set_help_flag("-h,--help", "Print this help and exit");
  app_.get_formatter()->column_width(34);
  AddSubmitCommands(*this);
  AddWatchCommand(*this);
  AddRunCommands(*this);
  AddStreamCommands(*this);
  AddWorkersCommand(*this);
  AddClusterCommand(app_, &exit_code_);
}

CLI::App* Program::AddCommand(const std::string& name, const std::string& description,
                              CommandBody body) {
  CLI::App* command = app_.add_subcommand(name, description);
  command
      ->add_option("--coordinator", flags_.coordinator,
                   "The coordinator's address; else LONGHAUL_COORDINATOR, else the local cluster")
      ->type_name("HOST:PORT");
  command
      ->add_option("--token-file", flags_.token_file,
                   "File with the coordinator's token; else LONGHAUL_TOKEN_FILE, else the local "
                   "cluster's")
      ->type_name("FILE");
  command->add_flag("--json", json_,
                    "Print JSON: one document, or one object a line where it streams");
  command->callback([this, body = std::move(body)] {
    Session session(terminal_, flags_, json_);
    const StatusOr<int> result = body(session);
    terminal_.out.flush();
    if (result.ok()) {
      exit_code_ = *result;
      return;
    }
    exit_code_ = session.interrupt().fired() ? kInterrupted : kFailed;
    terminal_.err << PrintableLines(Message(result.status())) << std::endl;
  });
  return command;
}

int Program::Report(const CLI::ParseError& error) {
  const int code = app_.exit(error, terminal_.out, terminal_.err);
  terminal_.out.flush();
  return code == 0 ? kDone : kWrongUsage;
}

std::string Program::UnknownCommand(std::string_view word) const {
  if (word.starts_with('-')) return "";
  std::vector<std::string> known;
  for (const CLI::App* command : app_.get_subcommands([](const CLI::App*) { return true; })) {
    known.push_back(command->get_name());
  }
  if (std::find(known.begin(), known.end(), word) != known.end()) return "";
  const std::string nearest = NearestWord(word, known);
  return "unknown command '" + Printable(word) + "'" +
         (nearest.empty() ? "" : "; did you mean '" + nearest + "'?");
}

int Program::Run(int argc, const char* const* argv) {
  try {
    if (argc == 1) {
      terminal_.err << app_.help();
      return kWrongUsage;
    }
    const std::string_view first = argv[1];
    if (const std::string problem = UnknownCommand(first); !problem.empty()) {
      terminal_.err << problem << "\nRun longhaul --help for the commands.\n";
      return kWrongUsage;
    }
    app_.parse(argc, argv);
    return exit_code_;
  } catch (const CLI::ParseError& error) {
    return Report(error);
  } catch (const std::exception& error) {
    terminal_.err << "longhaul failed: " << error.what() << std::endl;
    return kFailed;
  }
}

}  // namespace longhaul::cli
