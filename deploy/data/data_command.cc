#include "deploy/data/data_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "deploy/data/fetch_command.h"

namespace longhaul {
namespace {

constexpr int kDataFailed = 1;

int RunData(const std::vector<std::string>& arguments) {
  // With `fetch` of this program Python reads what is at addresses.
  std::error_code ignored;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", ignored);
  ::setenv("LONGHAUL_PROGRAM", self.c_str(), /*overwrite=*/1);
  fmt::print(stderr, "longhaul data: {}\n", Message(RunPythonProgram(DataPart(), arguments)));
  return kDataFailed;
}

void AddPart(CLI::App* data, const std::string& name, const std::string& description,
             int* exit_code) {
  CLI::App* command = data->add_subcommand(name, description);
  // Python reads the arguments, --help among them.
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, name, exit_code] {
    std::vector<std::string> arguments = command->remaining();
    arguments.insert(arguments.begin(), name);
    *exit_code = RunData(arguments);
  });
}

}  // namespace

PythonPart DataPart() {
  // What everything needs. Formats that need more say so when they are read.
  return {.name = "data",
          .needs = "numpy and tokenizers",
          .check = "import numpy, tokenizers",
          .packages = "--data"};
}

CLI::App* AddDataCommand(CLI::App& app, int* exit_code) {
  CLI::App* data =
      app.add_subcommand("data", "Data sets: token shards with a manifest, out of texts");
  data->require_subcommand(1);
  data->footer(
      "  longhaul data prepare --tokenizer tokenizer.json --out DIR FILES...\n"
      "  longhaul data prepare --tokenizer DIR --out DIR hf://datasets/ORG/NAME/FOLDER/\n"
      "  longhaul data show DIR\n"
      "Runs Python with the package tokenizers, which deploy/setup.sh --data brings:\n"
      "LONGHAUL_PYTHON names another Python.");
  AddPart(data, "prepare", "Make a data set of texts, or of token files that are there", exit_code);
  AddFetchCommand(data, exit_code);
  AddPart(data, "show", "What is in a data set, and its first tokens as text", exit_code);
  return data;
}

}  // namespace longhaul
