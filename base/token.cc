#include "base/token.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string_view>

#include "absl/strings/escaping.h"
#include "base/file.h"
#include "base/log.h"

namespace longhaul {
namespace {

constexpr std::string_view kRemedy =
    "make one with: (umask 077; head -c 32 /dev/urandom | base64 -w 0 > FILE)";

std::string_view FirstLineTrimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  std::string_view line = text.substr(0, text.find('\n'));
  const size_t first = line.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  line.remove_prefix(first);
  return line.substr(0, line.find_last_not_of(kBlank) + 1);
}

// There is one, of somebody else: in containers easily so.
std::string AccessRemedy(const std::string& path) {
  struct stat info {};
  const std::string owner = ::stat(path.c_str(), &info) == 0 ? fmt::format("user {}", info.st_uid)
                                                             : std::string("its owner");
  return fmt::format(
      "this program runs as user {}; run it as {} (a container with --user, the compose cluster "
      "with LONGHAUL_UID), or give it the file: chown {} FILE",
      ::geteuid(), owner, ::geteuid());
}

}  // namespace

StatusOr<std::string> LoadToken(const std::string& path) {
  StatusOr<std::string> contents = ReadFile(path, 64 << 10);
  if (!contents.ok()) {
    return FailedPrecondition(
        "token file: {}; {}", Message(contents.status()),
        absl::IsPermissionDenied(contents.status()) ? AccessRemedy(path) : std::string(kRemedy));
  }
  const std::string_view token = FirstLineTrimmed(*contents);
  if (token.size() < kMinTokenBytes || token.size() > kMaxTokenBytes) {
    return FailedPrecondition(
        "token file {}: expected {} to {} characters in the first line, got {}; {}", path,
        kMinTokenBytes, kMaxTokenBytes, token.size(), kRemedy);
  }
  if (!std::all_of(token.begin(), token.end(), [](char c) { return c >= 0x20 && c < 0x7f; })) {
    return FailedPrecondition(
        "token file {}: expected printable ASCII in the first line, got other bytes; {}", path,
        kRemedy);
  }
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0 && (info.st_mode & S_IROTH) != 0) {
    LogWarning("token file {} can be read by everybody on this machine; chmod 600 it", path);
  }
  return std::string(token);
}

Status GenerateTokenFile(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) {
    return AlreadyExists("token file {} is there already; remove it first to make a new token",
                         path);
  }
  return WriteFileAtomic(path, absl::BytesToHexString(RandomBytes(32)) + "\n", 0600);
}

}  // namespace longhaul
