#include "deploy/tokenize.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/spawn.h"
#include "base/unique_fd.h"
#include "deploy/data/data_command.h"

namespace longhaul::cli {
namespace {

using Json = nlohmann::json;

constexpr size_t kMostAnswerBytes = size_t{128} << 20;

// A file in memory that begins with `content`.
StatusOr<UniqueFd> MemoryFile(const char* name, std::string_view content) {
  UniqueFd file(memfd_create(name, MFD_CLOEXEC));
  if (!file) return FromErrno("memfd_create", errno);
  while (!content.empty()) {
    const ssize_t wrote = write(file.get(), content.data(), content.size());
    if (wrote < 0 && errno != EINTR) return FromErrno("writing to memory", errno);
    if (wrote > 0) content.remove_prefix(static_cast<size_t>(wrote));
  }
  if (lseek(file.get(), 0, SEEK_SET) != 0) return FromErrno("lseek", errno);
  return file;
}

StatusOr<std::string> Content(const UniqueFd& file) {
  const off_t size = lseek(file.get(), 0, SEEK_END);
  if (size < 0 || static_cast<size_t>(size) > kMostAnswerBytes) {
    return InvalidArgument("expected an answer of at most {} bytes, got {}", kMostAnswerBytes,
                           static_cast<int64_t>(size));
  }
  std::string content(static_cast<size_t>(size), '\0');
  size_t at = 0;
  while (at < content.size()) {
    const ssize_t got =
        pread(file.get(), content.data() + at, content.size() - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return FromErrno("reading from memory", errno);
    at += static_cast<size_t>(got);
  }
  return content;
}

// Runs `words` with these files as standard input and output. Returns the exit code; 128 and more:
// a signal.
StatusOr<int> RunProgram(std::vector<std::string> words, int in, int out) {
  LH_ASSIGN_OR_RETURN(const pid_t pid, Spawn(std::move(words), in, out, ChildGroup::kOurs));
  int status = 0;
  while (waitpid(pid, &status, 0) < 0) {
    if (errno != EINTR) return FromErrno("waitpid", errno);
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

StatusOr<std::string> Question(const std::vector<std::string>& texts, bool chat) {
  const Json question = {{"texts", texts}, {"chat", chat}};
  try {
    return question.dump();
  } catch (const Json::exception&) {
    return absl::InvalidArgumentError("expected UTF-8, got other bytes");
  }
}

}  // namespace

StatusOr<Tokenized> TokenizeByPython(const std::string& folder,
                                     const std::vector<std::string>& texts, bool chat) {
  LH_ASSIGN_OR_RETURN(const PythonProgram python, FindPythonProgram(DataPart()));
  LH_ASSIGN_OR_RETURN(const std::string question, Question(texts, chat));
  LH_ASSIGN_OR_RETURN(const UniqueFd in, MemoryFile("texts", question));
  LH_ASSIGN_OR_RETURN(const UniqueFd out, MemoryFile("tokens", ""));
  LH_ASSIGN_OR_RETURN(const int code,
                      RunProgram({python.python, "-B", python.main.string(), "tokens", folder},
                                 in.get(), out.get()));
  if (code != 0) {
    return FailedPrecondition("{} cannot tokenize with {}; it ended with exit code {}",
                              python.python, folder, code);
  }
  LH_ASSIGN_OR_RETURN(const std::string answer, Content(out));
  Tokenized tokenized;
  try {
    const Json json = Json::parse(answer);
    tokenized.ids = json.at("ids").get<std::vector<std::vector<uint32_t>>>();
    tokenized.stop = json.at("stop").get<std::vector<uint32_t>>();
    // Bytes as hexadecimal digits, because a piece need not be UTF-8.
    for (const Json& one : json.at("pieces")) {
      const auto digits = one.get<std::string>();
      std::string& piece = tokenized.pieces.emplace_back();
      for (size_t i = 0; i + 1 < digits.size(); i += 2) {
        piece += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
      }
    }
  } catch (const std::exception& error) {
    return Internal("expected ids, stop and pieces of {}: {}", python.main.string(), error.what());
  }
  if (tokenized.ids.size() != texts.size()) {
    return Internal("expected the ids of {} texts, got those of {}", texts.size(),
                    tokenized.ids.size());
  }
  if (tokenized.stop.size() > kMostSampleStops) tokenized.stop.resize(kMostSampleStops);
  return tokenized;
}

}  // namespace longhaul::cli
