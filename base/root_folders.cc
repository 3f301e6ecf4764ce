#include "base/root_folders.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <deque>
#include <filesystem>
#include <optional>
#include <utility>

namespace longhaul {
namespace {

constexpr size_t kLongestPath = PATH_MAX, kMostNames = 256;
constexpr int kMostLinks = 40;      // as the kernel follows
constexpr int kMostAttempts = 100;  // of a path in which somebody renames folders just now

void PushNames(std::string_view path, std::deque<std::string>* names) {
  std::vector<std::string> found;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    if (end > begin) found.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  names->insert(names->begin(), found.begin(), found.end());
}

std::optional<std::string> TargetOf(int link) {
  std::array<char, PATH_MAX> target{};
  const ssize_t size = ::readlinkat(link, "", target.data(), target.size());
  if (size <= 0 || static_cast<size_t>(size) == target.size()) return std::nullopt;
  return std::string(target.data(), static_cast<size_t>(size));
}

// Files of these tell what the kernel knows of the process that reads them, and links there
// lead elsewhere than their text says.
bool IsOfKernel(int fd) {
  struct statfs info {};
  if (::fstatfs(fd, &info) != 0) return true;
  return info.f_type == PROC_SUPER_MAGIC || info.f_type == SYSFS_MAGIC;
}

// Follows `below` one name at a time. Each folder on the way is held open and ".." goes back to the
// one that was held before, so a folder that somebody moves meanwhile leads nowhere else.
UniqueFd Walk(int root, const std::string& below, bool is_whole_tree) {
  std::vector<UniqueFd> folders;  // on the way
  std::deque<std::string> names;
  PushNames(below, &names);
  for (int links = 0; !names.empty() && names.size() <= kMostNames;) {
    const std::string name = std::move(names.front());
    names.pop_front();
    if (name == ".") continue;
    if (name == "..") {
      if (folders.empty() && !is_whole_tree) return {};
      if (!folders.empty()) folders.pop_back();
      continue;
    }
    const int at = folders.empty() ? root : folders.back().get();
    UniqueFd next(::openat(at, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (!next || ::fstat(next.get(), &info) != 0) return {};
    if (S_ISLNK(info.st_mode)) {
      const std::optional<std::string> target = TargetOf(next.get());
      if (!target || ++links > kMostLinks || IsOfKernel(next.get())) return {};
      if (target->starts_with('/')) {
        if (!is_whole_tree) return {};
        folders.clear();
      }
      PushNames(*target, &names);
      continue;
    }
    if (names.empty()) return next;
    if (!S_ISDIR(info.st_mode)) return {};
    folders.push_back(std::move(next));
  }
  return {};
}

// nullopt: the kernel does not know the call, or a container forbids it.
std::optional<UniqueFd> AskKernel(int root, const std::string& below, bool is_whole_tree) {
  open_how how{};
  how.flags = O_PATH | O_CLOEXEC;
  // Absolute links lead out of the whole tree no more than relative ones.
  how.resolve = RESOLVE_NO_MAGICLINKS | (is_whole_tree ? RESOLVE_IN_ROOT : RESOLVE_BENEATH);
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    const long fd = ::syscall(SYS_openat2, root, below.c_str(), &how, sizeof(how));
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    if (errno == ENOSYS || errno == EPERM || errno == E2BIG || errno == EINVAL) return std::nullopt;
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return UniqueFd();
}

// The kernel's name of an open file. "": unknown.
std::string NameOf(int fd) {
  std::array<char, PATH_MAX> name{};
  const std::string link = fmt::format("/proc/self/fd/{}", fd);
  const ssize_t size = ::readlink(link.c_str(), name.data(), name.size());
  if (size <= 0 || static_cast<size_t>(size) == name.size()) return "";
  return {name.data(), static_cast<size_t>(size)};
}

bool IsIn(std::string_view path, std::string_view folder) {
  return path.starts_with(folder) && (path.size() == folder.size() || path[folder.size()] == '/');
}

// The same for every path and with any roots: a stranger learns nothing of what is elsewhere.
Status NoFile() {
  return absl::NotFoundError("it is not in the folders that this worker reads (--data-root)");
}

}  // namespace

Status FileBeneath::Read(uint64_t offset, std::span<std::byte> into) const {
  const Status lost = absl::DataLossError("the file ends before, or cannot be read");
  // Before the kernel's own numbers overflow.
  if (offset > bytes_ || into.size() > bytes_ - offset) return lost;
  while (!into.empty()) {
    const ssize_t n = ::pread(file_.get(), into.data(), into.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return lost;
    into = into.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return absl::OkStatus();
}

StatusOr<RootFolders> RootFolders::Open(const std::vector<std::string>& folders,
                                        const std::vector<std::string>& withheld,
                                        Resolver resolver) {
  namespace fs = std::filesystem;
  RootFolders roots;
  roots.resolver_ = resolver;
  std::error_code error;
  for (const std::string& folder : folders) {
    std::string path = fs::absolute(folder, error).lexically_normal().string();
    if (folder.empty() || error || !fs::is_directory(path, error)) {
      return FailedPrecondition("expected a folder that is there, got '{}'", folder);
    }
    while (path.ends_with('/')) path.pop_back();
    roots.roots_.push_back(std::move(path));
  }
  for (const std::string& path : withheld) {
    const fs::path real = fs::canonical(path, error);
    if (!error) roots.withheld_.push_back(real.string());
  }
  return roots;
}

// A root is opened anew for each file: its disk may be mounted later than this program starts.
UniqueFd RootFolders::Find(const std::string& root, const std::string& below) const {
  const UniqueFd folder(
      ::open(root.empty() ? "/" : root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return {};
  if (resolver_ == Resolver::kKernel) {
    std::optional<UniqueFd> found = AskKernel(folder.get(), below, root.empty());
    if (found) return *std::move(found);
  }
  return Walk(folder.get(), below, root.empty());
}

StatusOr<FileBeneath> RootFolders::OpenFile(std::string_view path) const {
  if (!path.starts_with('/') || path.size() > kLongestPath ||
      path.find('\0') != std::string_view::npos) {
    return NoFile();
  }
  for (const std::string& root : roots_) {
    if (!path.starts_with(root) || path.size() == root.size() || path[root.size()] != '/') continue;
    std::string below(path.substr(root.size()));
    below.erase(0, below.find_first_not_of('/'));
    if (below.empty() || below.ends_with('/')) continue;
    const UniqueFd found = Find(root, below);
    struct stat info {};
    // The file is not open yet: opening a FIFO may block, and opening a device may act.
    if (!found || ::fstat(found.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    const std::string name = NameOf(found.get());
    if (name.empty() || IsOfKernel(found.get()) ||
        std::ranges::any_of(withheld_, [&](const auto& one) { return IsIn(name, one); })) {
      continue;
    }
    // By this name the kernel opens the very file that was looked at.
    const std::string held = fmt::format("/proc/self/fd/{}", found.get());
    UniqueFd file(::open(held.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    if (!file) continue;
    return FileBeneath(std::move(file), static_cast<uint64_t>(info.st_size));
  }
  return NoFile();
}

}  // namespace longhaul
