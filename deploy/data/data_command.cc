#include "deploy/data/data_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "deploy/cluster/process.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr int kDataFailed = 1;
constexpr char kMain[] = "main.py";
// What everything needs. Formats that need more say so when they are read.
constexpr char kImports[] = "import numpy, tokenizers";

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// The last line of what a Python that cannot import says: "ModuleNotFoundError: ...".
std::string LacksPackages(const std::string& python) {
  const Status done = RunTool({python, "-c", kImports}).status();
  if (done.ok()) return "";
  std::string text(Message(done));
  text.resize(text.find_last_not_of(" \n") + 1);
  const size_t line = text.find_last_of('\n');
  return line == std::string::npos ? text : text.substr(line + 1);
}

StatusOr<fs::path> FindSources(const DataProgramSearch& search) {
  if (!search.sources.empty()) {
    if (Exists(fs::path(search.sources) / kMain)) return fs::path(search.sources);
    return absl::FailedPreconditionError(fmt::format(
        "LONGHAUL_DATA_SOURCES: expected a folder with {}, got {}", kMain, search.sources));
  }
  const fs::path folder = search.program.parent_path();
  const fs::path installed = folder.parent_path() / "share/longhaul/data";
  if (Exists(installed / kMain)) return installed;
  for (fs::path above = folder; above.has_relative_path(); above = above.parent_path()) {
    if (Exists(above / "deploy/data" / kMain)) return above / "deploy/data";
  }
  return absl::FailedPreconditionError(
      fmt::format("expected the Python sources of `longhaul data` in {} or in deploy/data of a "
                  "checkout around {}; name their folder by LONGHAUL_DATA_SOURCES",
                  installed.string(), folder.string()));
}

std::vector<std::string> Pythons(const DataProgramSearch& search, const fs::path& sources) {
  if (!search.python.empty()) return {search.python};
  std::vector<std::string> pythons;
  // A checkout has deploy/data, an installation share/longhaul/data.
  const fs::path checkout = sources.parent_path().parent_path();
  for (const fs::path& root : {checkout, checkout.parent_path()}) {
    const fs::path python = root / ".deps/venv/bin/python";
    if (Exists(python)) pythons.push_back(python.string());
  }
  pythons.push_back("python3");
  return pythons;
}

std::string HowToInstall(const fs::path& sources) {
  const fs::path setup = sources.parent_path() / "setup.sh";
  if (Exists(setup)) return setup.string() + " --data";
  return fmt::format(
      "python3 -m venv VENV && VENV/bin/pip install --no-deps -r {}, then set "
      "LONGHAUL_PYTHON=VENV/bin/python",
      (sources / "requirements.txt").string());
}

// Becomes the Python. Returns only if that fails.
Status Become(const DataProgram& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {program.python, "-B", program.main.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  std::fflush(nullptr);
  execvp(pointers[0], pointers.data());
  return FromErrno(program.python, errno);
}

int RunData(const std::vector<std::string>& arguments) {
  fmt::print(stderr, "longhaul data: {}\n", Message(RunDataProgram(arguments)));
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

StatusOr<DataProgram> FindDataProgram(const DataProgramSearch& search) {
  LH_ASSIGN_OR_RETURN(const fs::path sources, FindSources(search));
  std::string tried;
  for (const std::string& python : Pythons(search, sources)) {
    const std::string lacks = search.lacks(python);
    if (lacks.empty()) return DataProgram{python, sources / kMain};
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", python, lacks);
  }
  return absl::FailedPreconditionError(
      fmt::format("expected a Python that has numpy and tokenizers; {}. Install them: {}", tried,
                  HowToInstall(sources)));
}

Status RunDataProgram(const std::vector<std::string>& arguments) {
  std::error_code error;
  LH_ASSIGN_OR_RETURN(
      const DataProgram program,
      FindDataProgram({fs::read_symlink("/proc/self/exe", error), Variable("LONGHAUL_PYTHON"),
                       Variable("LONGHAUL_DATA_SOURCES"), LacksPackages}));
  return Become(program, arguments);
}

CLI::App* AddDataCommand(CLI::App& app, int* exit_code) {
  CLI::App* data =
      app.add_subcommand("data", "Data sets: token shards with a manifest, out of texts");
  data->require_subcommand(1);
  data->footer(
      "  longhaul data prepare --tokenizer tokenizer.json --out DIR FILES...\n"
      "  longhaul data show DIR\n"
      "Runs Python with the package tokenizers, which deploy/setup.sh --data brings:\n"
      "LONGHAUL_PYTHON names another Python.");
  AddPart(data, "prepare", "Make a data set of texts, or of token files that are there", exit_code);
  AddPart(data, "show", "What is in a data set, and its first tokens as text", exit_code);
  return data;
}

}  // namespace longhaul
