// What a run file says about data, held against the files that are there.
#include <fmt/core.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "run/file/run_spec.h"

namespace longhaul {
namespace {

// The folder is a name, not a pattern.
std::string EscapeGlob(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '*' || c == '?' || c == '[' || c == '\\') out.push_back('\\');
    out.push_back(c);
  }
  return out;
}

// What is wrong with a matched file, or "".
std::string CheckFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) return std::strerror(errno);
  if (S_ISDIR(info.st_mode)) return "is a folder; name the files in it, such as " + path + "/*.txt";
  if (!S_ISREG(info.st_mode)) return "is not a regular file";
  if (access(path.c_str(), R_OK) != 0) return std::strerror(errno);
  return "";
}

std::vector<std::string> Glob(const std::string& pattern) {
  glob_t found{};
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) paths.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
  return paths;
}

}  // namespace

StatusOr<std::vector<std::string>> ExpandDataFiles(const RunSpec& spec, const std::string& folder) {
  std::vector<std::string> files;
  std::string problems;
  const auto fail = [&](const std::string& text) {
    problems += (problems.empty() ? "" : "\n") + text;
  };
  for (const std::string& glob : spec.data.text) {
    const bool absolute = glob.starts_with('/') || folder.empty();
    const std::string pattern = absolute ? glob : EscapeGlob(folder) + "/" + glob;
    const std::vector<std::string> matches = Glob(pattern);
    if (matches.empty()) {
      // A list in quotes is one text.
      const bool list = glob.starts_with('[') && glob.ends_with(']');
      fail(fmt::format("data.text: '{}' matches no file{}{}", glob,
                       absolute ? "" : fmt::format(" in {}", folder),
                       list ? "; a list stands without quotes around it" : ""));
    }
    for (const std::string& path : matches) {
      const std::string problem = CheckFile(path);
      if (!problem.empty()) fail(fmt::format("data.text: {}: {}", path, problem));
      files.push_back(path);
    }
  }
  if (!problems.empty()) return absl::InvalidArgumentError(problems);
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

Status CheckDataSize(const RunSpec& spec, uint64_t tokens) {
  // The tokenizer's arithmetic: the end of the text, rounded down.
  const auto validation =
      static_cast<uint64_t>(static_cast<double>(tokens) * spec.validation.share);
  const uint64_t training = tokens - validation;
  const uint64_t window = uint64_t{spec.model.context} + 1;
  std::string problems;
  if (training < window) {
    problems += fmt::format(
        "data.text: {} tokens to train on ({} in all) are less than one window of {} "
        "(model.context + 1); give more text or lower model.context",
        training, tokens, window);
  }
  if (spec.validation.every > 0 && validation < window) {
    problems += fmt::format(
        "{}data.text: {} tokens for validation (share {} of {}) are less than one window of {} "
        "(model.context + 1); give more text, raise validation.share or set validation.every to 0",
        problems.empty() ? "" : "\n", validation, spec.validation.share, tokens, window);
  }
  return problems.empty() ? absl::OkStatus() : absl::InvalidArgumentError(problems);
}

}  // namespace longhaul
