#include "deploy/python_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "base/spawn.h"
#include "base/unique_fd.h"

namespace longhaul {
namespace {

namespace fs = std::filesystem;

constexpr char kMain[] = "main.py";

bool Exists(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

std::string Variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  return value == nullptr ? "" : value;
}

std::string SourcesVariable(const PythonPart& part) {
  std::string name = part.name;
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return fmt::format("LONGHAUL_{}_SOURCES", name);
}

// What a Python that cannot import says: "ModuleNotFoundError: ...".
std::string Lacks(const PythonPart& part, const std::string& python) {
  // Without the current folder: a file token.py there is not Python's module.
  const std::string check = fmt::format(
      "import sys; sys.path[:] = filter(None, sys.path)\n"
      "try:\n {}\nexcept SystemExit as said: sys.exit(print(said, end='') or 1)\n"
      "except Exception as error: sys.exit(print(type(error).__name__, error, sep=': ', end='') or "
      "1)",
      part.check);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return std::string(Message(FromErrno("pipe2", errno)));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  const UniqueFd nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const StatusOr<pid_t> pid =
      Spawn({python, "-c", check}, nothing.get(), write_end.get(), ChildGroup::kOurs);
  if (!pid.ok()) return std::string(Message(pid.status()));
  write_end.Reset();
  std::string said;
  char part_of_it[256];
  for (ssize_t got = 1; got != 0;) {
    got = read(read_end.get(), part_of_it, sizeof part_of_it);
    if (got > 0) said.append(part_of_it, static_cast<size_t>(got));
    if (got < 0 && errno != EINTR) break;
  }
  int status = 0;
  while (waitpid(*pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return "";
  return said.empty() ? fmt::format("ended with status {}", status) : said;
}

StatusOr<fs::path> FindSources(const PythonPart& part, const PythonSearch& search) {
  if (!search.sources.empty()) {
    if (Exists(fs::path(search.sources) / kMain)) return fs::path(search.sources);
    return FailedPrecondition("{}: expected a folder with {}, got {}", SourcesVariable(part), kMain,
                              search.sources);
  }
  const fs::path folder = search.program.parent_path();
  const fs::path installed = folder.parent_path() / "share/longhaul" / part.name;
  if (Exists(installed / kMain)) return installed;
  const fs::path sources = fs::path("deploy") / part.name;
  for (fs::path above = folder; above.has_relative_path(); above = above.parent_path()) {
    if (Exists(above / sources / kMain)) return above / sources;
  }
  return FailedPrecondition(
      "expected the Python sources of `longhaul {}` in {} or in {} of a checkout around {}; name "
      "their folder by {}",
      part.name, installed.string(), sources.string(), folder.string(), SourcesVariable(part));
}

std::vector<std::string> Pythons(const PythonSearch& search, const fs::path& sources) {
  if (!search.python.empty()) return {search.python};
  std::vector<std::string> pythons;
  // A checkout has deploy/NAME, an installation share/longhaul/NAME.
  const fs::path checkout = sources.parent_path().parent_path();
  for (const fs::path& root : {checkout, checkout.parent_path()}) {
    const fs::path python = root / ".deps/venv/bin/python";
    if (Exists(python)) pythons.push_back(python.string());
  }
  pythons.push_back("python3");
  return pythons;
}

std::string HowToInstall(const PythonPart& part, const fs::path& sources) {
  if (part.packages.empty()) return "the package python3 of this system";
  const fs::path setup = sources.parent_path() / "setup.sh";
  if (Exists(setup)) return fmt::format("{} {}", setup.string(), part.packages);
  return fmt::format(
      "python3 -m venv VENV && VENV/bin/pip install --no-deps -r {}, then set "
      "LONGHAUL_PYTHON=VENV/bin/python",
      (sources / "requirements.txt").string());
}

// A file in memory, at its beginning, in the place of standard input.
Status SetInput(const std::string& text) {
  const int fd = memfd_create("input", 0);
  if (fd < 0) return FromErrno("memfd_create", errno);
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0) return FromErrno("writing the program's input", errno);
    done += static_cast<size_t>(wrote);
  }
  if (lseek(fd, 0, SEEK_SET) != 0 || dup2(fd, STDIN_FILENO) < 0) return FromErrno("dup2", errno);
  close(fd);
  return absl::OkStatus();
}

}  // namespace

StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part, const PythonSearch& search) {
  LH_ASSIGN_OR_RETURN(const fs::path sources, FindSources(part, search));
  std::string tried;
  for (const std::string& python : Pythons(search, sources)) {
    const std::string lacks = search.lacks(python);
    if (lacks.empty()) return PythonProgram{python, sources / kMain};
    tried += fmt::format("{}{}: {}", tried.empty() ? "" : "; ", python, lacks);
  }
  return FailedPrecondition("expected a Python that has {}; {}. Install them: {}", part.needs,
                            tried, HowToInstall(part, sources));
}

StatusOr<PythonProgram> FindPythonProgram(const PythonPart& part) {
  std::error_code error;
  return FindPythonProgram(part,
                           {fs::read_symlink("/proc/self/exe", error), Variable("LONGHAUL_PYTHON"),
                            Variable(SourcesVariable(part)),
                            [&part](const std::string& python) { return Lacks(part, python); }});
}

PythonPart PythonCodecPart() {
  return {.name = "codec", .needs = "numpy", .check = "import numpy", .packages = "--data"};
}

Status RunPythonProgram(const PythonPart& part, const std::vector<std::string>& arguments,
                        const std::optional<std::string>& input) {
  LH_ASSIGN_OR_RETURN(const PythonProgram program, FindPythonProgram(part));
  std::vector<std::string> words = {program.python, "-B", program.main.string()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  pointers.reserve(words.size() + 1);
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  if (input) LH_RETURN_IF_ERROR(SetInput(*input));
  std::fflush(nullptr);
  execvp(pointers[0], pointers.data());
  return FromErrno(program.python, errno);
}

}  // namespace longhaul
